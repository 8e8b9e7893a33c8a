/* @NAME@: a functional mock-up unit for co-simulation around the compiled step, made by holonomix. */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "@NAME@.h"

#define EXPORT __attribute__((visibility("default")))
#define TOKEN "@TOKEN@"
#define NEAR 1e-6  /* relative distance within which a communication step is a multiple of dt */
#define MANY 1e15  /* steps in one communication step; no run ends after so many */
#define DRIFT 1e-2 /* rounding error of the importer's clock, relative to dt */

enum { OK = 0, ERROR = 3 };              /* fmi2Status and fmi3Status */
enum { OUTPUT, START, PARAMETER, INPUT }; /* what a variable is; START is the state, which can be set at the start */
enum { MADE, INITIALIZING, STEPPING, ENDED };
enum { NEW_START = 1, NEW_INPUT = 2 };

/* variables by value reference: offset in the block, count, kind */
static const struct variable { uint32_t offset, count; int kind; const char *name; } variables[] = {
@VARIABLES@
};
static const size_t variable_count = sizeof variables / sizeof variables[0];

typedef struct {
  @NAME@_kernel block;
  int phase, changed; /* changed: variables were set since the last step */
} state;

typedef struct {
  state now;
  void *environment;
  void (*log)(void);
  char name[128];
} instance;

static void report(instance *c, const char *text);

static int fail(instance *c, const char *format, ...) {
  char text[1024];
  va_list rest;
  va_start(rest, format);
  vsnprintf(text, sizeof text, format, rest);
  va_end(rest);
  report(c, text);
  return ERROR;
}

static const char *status_text(int32_t status) {
  static const char *const texts[] = {@STATUS@};
  return status >= 0 && (size_t)status < sizeof texts / sizeof texts[0] ? texts[status] : "unknown status";
}

static double *number(state *s, size_t offset) { return (double *)(void *)(s->block.bytes + offset); }
static int64_t *count_of(state *s) { return (int64_t *)(void *)(s->block.bytes + @STEP_COUNT@); }
static double time_of(state *s) { return *@NAME@_t(&s->block); }

static void reset(instance *c) {
  memset(&c->now, 0, sizeof c->now);
  @NAME@_init(&c->now.block);
}

static instance *make(const char *name) {
  instance *c = aligned_alloc(64, (sizeof *c + 63) / 64 * 64);
  if (!c) return NULL;
  memset(c, 0, sizeof *c);
  snprintf(c->name, sizeof c->name, "%s", name ? name : "");
  reset(c);
  return c;
}

static int known(instance *c, uint32_t reference) {
  return reference < variable_count ? OK : fail(c, "there is no variable with the value reference %u", (unsigned)reference);
}

/* Pass changed values to the kernel. A changed start is projected to the nearest consistent state. A changed input starts
   a new run at the current state and time. */
static int apply(instance *c) {
  state *s = &c->now;
  int32_t status = 0;
  if (!s->changed) return OK;
  if (s->changed & NEW_START) {
@PROJECT@
    status = @NAME@_start(&s->block);
  } else {
    double origin = *number(s, @ORIGIN@);
    int64_t n = *count_of(s);
    status = @NAME@_start(&s->block);
    *number(s, @ORIGIN@) = origin;
    *count_of(s) = n;
  }
  if (status) return fail(c, "no step can begin at t = %.17g: %s", time_of(s), status_text(status));
  s->changed = 0;
  return OK;
}

static int get(instance *c, const uint32_t references[], size_t count, double values[], size_t size) {
  size_t at = 0;
  if (c->now.phase != MADE && apply(c)) return ERROR;
  for (size_t i = 0; i < count; i++) {
    if (known(c, references[i])) return ERROR;
    const struct variable *v = &variables[references[i]];
    if (at + v->count > size) return fail(c, "%s has %u numbers, more than there is room for", v->name, (unsigned)v->count);
    memcpy(values + at, number(&c->now, v->offset), v->count * sizeof(double));
    at += v->count;
  }
  return OK;
}

static int set(instance *c, const uint32_t references[], size_t count, const double values[], size_t size) {
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    if (known(c, references[i])) return ERROR;
    const struct variable *v = &variables[references[i]];
    double *place = number(&c->now, v->offset);
    size_t bytes = v->count * sizeof(double);
    if (v->kind == OUTPUT) return fail(c, "%s is an output and cannot be set", v->name);
    if (v->kind != INPUT && c->now.phase >= STEPPING) return fail(c, "%s can be set only before the first step", v->name);
    if (at + v->count > size) return fail(c, "%s needs %u numbers", v->name, (unsigned)v->count);
    for (size_t k = 0; k < v->count; k++)
      if (!isfinite(values[at + k])) return fail(c, "%s cannot be %g", v->name, values[at + k]);
    if (memcmp(place, values + at, bytes)) {
      memcpy(place, values + at, bytes);
      c->now.changed |= v->kind == INPUT ? NEW_INPUT : NEW_START;
    }
    at += v->count;
  }
  return OK;
}

static int initialize(instance *c, double start) {
  if (!isfinite(start)) return fail(c, "the start time %g is not finite", start);
  if (start != time_of(&c->now)) {
    *@NAME@_t(&c->now.block) = start;
    c->now.changed |= NEW_START;
  }
  c->now.phase = INITIALIZING;
  return OK;
}

static int finish_initialization(instance *c) {
  if (*@NAME@_dt(&c->now.block) <= 0) return fail(c, "dt = %g is not positive", *@NAME@_dt(&c->now.block));
  if (apply(c)) return ERROR;
  c->now.phase = STEPPING;
  return OK;
}

static int steps(instance *c, int64_t count) {
  int32_t status = @NAME@_step(&c->now.block, count);
  return status ? fail(c, "after t = %.17g: %s", time_of(&c->now), status_text(status)) : OK;
}

/* Step to the end of a communication step. */
static int advance(instance *c, double from, double length) {
  state *s = &c->now;
  double *dt = @NAME@_dt(&s->block);
  double end = from + length, ratio = length / *dt, count = nearbyint(ratio);
  if (s->phase != STEPPING) return fail(c, "steps need a unit that is initialized and not terminated");
  if (!(length >= 0) || !isfinite(end)) return fail(c, "a communication step of %g from t = %g is not possible", length, from);
  if (!(fabs(from - time_of(s)) <= DRIFT * *dt))
    return fail(c, "the communication step begins at t = %.12g, but the unit is at t = %.12g", from, time_of(s));
  if (apply(c)) return ERROR;
  if (!(ratio < MANY)) return fail(c, "a communication step of %.12g has more than %.0e steps of dt = %.12g", length, MANY, *dt);
  if (fabs(ratio - count) <= NEAR * fmax(count, 1)) return steps(c, (int64_t)count);
#if @SHORTENS@
  double whole = *dt;
  if (steps(c, (int64_t)floor(ratio))) return ERROR;
  *dt = end - time_of(s);
  int failed = @NAME@_start(&s->block) || steps(c, 1);
  *dt = whole;
  if (failed) return ERROR;
  *@NAME@_t(&s->block) = end;
  return @NAME@_start(&s->block) ? ERROR : OK;
#else
  return fail(c, "the communication step %.12g is not a multiple of dt = %.12g, and @METHOD@ cannot change its step: "
              "choose a multiple, or set the parameter dt before the start, for instance to %.12g",
              length, *dt, length / ceil(length / *dt));
#endif
}

static int get_state(instance *c, void **kept) {
  if (!*kept) *kept = aligned_alloc(64, (sizeof(state) + 63) / 64 * 64);
  if (!*kept) return fail(c, "no memory for a state");
  memcpy(*kept, &c->now, sizeof(state));
  return OK;
}

static int set_state(instance *c, const void *kept) {
  if (!kept) return fail(c, "there is no state to set");
  memcpy(&c->now, kept, sizeof(state));
  return OK;
}

static int write_state(instance *c, const void *kept, char *bytes, size_t size) {
  if (!kept || size < sizeof(state)) return fail(c, "a state has %zu bytes, not %zu", sizeof(state), size);
  memcpy(bytes, kept, sizeof(state));
  return OK;
}

static int read_state(instance *c, const char *bytes, size_t size, void **kept) {
  if (size != sizeof(state)) return fail(c, "a state has %zu bytes, not %zu", sizeof(state), size);
  if (!*kept) *kept = aligned_alloc(64, (sizeof(state) + 63) / 64 * 64);
  if (!*kept) return fail(c, "no memory for a state");
  memcpy(*kept, bytes, sizeof(state));
  return OK;
}

@INTERFACE@
