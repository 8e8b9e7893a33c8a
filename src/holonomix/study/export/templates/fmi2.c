/* FMI 2.0 */
typedef struct {
  void (*logger)(void *environment, const char *name, int status, const char *category, const char *format, ...);
  void *(*allocate)(size_t count, size_t size);
  void (*release)(void *memory);
  void (*finished)(void *environment, int status);
  void *environment;
} callbacks;

typedef void (*logger)(void *environment, const char *name, int status, const char *category, const char *format, ...);

static void report(instance *c, const char *text) {
  if (c->log) ((logger)c->log)(c->environment, c->name, ERROR, "logStatusError", "%s", text);
}

EXPORT const char *fmi2GetTypesPlatform(void) { return "default"; }
EXPORT const char *fmi2GetVersion(void) { return "2.0"; }
EXPORT int fmi2SetDebugLogging(void *c, int on, size_t count, const char *const categories[]) { return OK; }

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources,
    const callbacks *functions, int visible, int logging) {
  instance *c = make(name);
  if (!c) return NULL;
  if (functions) {
    c->environment = functions->environment;
    c->log = (void (*)(void))functions->logger;
  }
  if (token && !strcmp(token, TOKEN) && type == 1) return c;
  if (type != 1) fail(c, "this unit is for co-simulation");
  else fail(c, "the GUID is %s, not %s: modelDescription.xml and library do not belong together", token ? token : "missing", TOKEN);
  free(c);
  return NULL;
}

EXPORT void fmi2FreeInstance(void *c) { free(c); }
EXPORT int fmi2SetupExperiment(void *c, int with_tolerance, double tolerance, double start, int with_stop, double stop) {
  return initialize(c, start);
}
EXPORT int fmi2EnterInitializationMode(void *c) { ((instance *)c)->now.phase = INITIALIZING; return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) { return finish_initialization(c); }
EXPORT int fmi2Terminate(void *c) { ((instance *)c)->now.phase = ENDED; return OK; }
EXPORT int fmi2Reset(void *c) { reset(c); return OK; }

EXPORT int fmi2GetReal(void *c, const unsigned vr[], size_t n, double values[]) { return get(c, vr, n, values, n); }
EXPORT int fmi2SetReal(void *c, const unsigned vr[], size_t n, const double values[]) { return set(c, vr, n, values, n); }

EXPORT int fmi2DoStep(void *c, double from, double length, int forward) { return advance(c, from, length); }
EXPORT int fmi2CancelStep(void *c) { return fail(c, "a step cannot be canceled: steps end before they return"); }

EXPORT int fmi2GetFMUstate(void *c, void **kept) { return get_state(c, kept); }
EXPORT int fmi2SetFMUstate(void *c, void *kept) { return set_state(c, kept); }
EXPORT int fmi2FreeFMUstate(void *c, void **kept) { free(*kept); *kept = NULL; return OK; }
EXPORT int fmi2SerializedFMUstateSize(void *c, void *kept, size_t *size) { *size = sizeof(state); return OK; }
EXPORT int fmi2SerializeFMUstate(void *c, void *kept, char bytes[], size_t size) {
  return write_state(c, kept, bytes, size);
}
EXPORT int fmi2DeSerializeFMUstate(void *c, const char bytes[], size_t size, void **kept) {
  return read_state(c, bytes, size, kept);
}

/* variables of other types do not exist */
#define OTHER(NAME, TYPE) \
  EXPORT int fmi2Get##NAME(void *c, const unsigned vr[], size_t n, TYPE values[]) { \
    return n ? fail(c, "all variables have the type Real") : OK; \
  } \
  EXPORT int fmi2Set##NAME(void *c, const unsigned vr[], size_t n, const TYPE values[]) { \
    return n ? fail(c, "all variables have the type Real") : OK; \
  }
OTHER(Integer, int)
OTHER(Boolean, int)
OTHER(String, char *)

/* steps end before they return: nothing is ever pending */
#define STATUS(NAME, TYPE) \
  EXPORT int fmi2Get##NAME##Status(void *c, int kind, TYPE *value) { return fail(c, "no step is pending"); }
STATUS(, int)
STATUS(Integer, int)
STATUS(Boolean, int)
STATUS(String, const char *)
EXPORT int fmi2GetRealStatus(void *c, int kind, double *value) {
  *value = time_of(&((instance *)c)->now); /* fmi2LastSuccessfulTime is the only one */
  return OK;
}

#define NONE(NAME, ...) \
  EXPORT int fmi2##NAME(void *c, ##__VA_ARGS__) { return fail(c, "fmi2" #NAME " is not supported"); }
NONE(GetDirectionalDerivative, const unsigned unknown[], size_t n, const unsigned known[], size_t m, const double seed[],
     double values[])
NONE(SetRealInputDerivatives, const unsigned vr[], size_t n, const int orders[], const double values[])
NONE(GetRealOutputDerivatives, const unsigned vr[], size_t n, const int orders[], double values[])
