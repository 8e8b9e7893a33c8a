/* FMI 3.0 */
typedef void (*log_message)(void *environment, int status, const char *category, const char *message);

static void report(instance *c, const char *text) {
  if (c->log) ((log_message)c->log)(c->environment, ERROR, "logStatusError", text);
}

EXPORT const char *fmi3GetVersion(void) { return "3.0"; }

EXPORT int fmi3SetDebugLogging(void *c, bool on, size_t count, const char *const categories[]) { return OK; }

EXPORT void *fmi3InstantiateCoSimulation(const char *name, const char *token, const char *resources, bool visible,
    bool logging, bool events, bool early, const uint32_t intermediate[], size_t intermediate_count, void *environment,
    log_message log, void *update) {
  instance *c = make(name);
  if (!c) return NULL;
  c->environment = environment;
  c->log = (void (*)(void))log;
  if (token && !strcmp(token, TOKEN)) return c;
  fail(c, "the instantiation token is %s, not %s: modelDescription.xml and library do not belong together",
       token ? token : "missing", TOKEN);
  free(c);
  return NULL;
}

EXPORT void *fmi3InstantiateModelExchange(const char *name, const char *token, const char *resources, bool visible,
    bool logging, void *environment, log_message log) {
  if (log) log(environment, ERROR, "logStatusError", "this unit is for co-simulation");
  return NULL;
}

EXPORT void *fmi3InstantiateScheduledExecution(const char *name, const char *token, const char *resources, bool visible,
    bool logging, void *environment, log_message log, void *update, void *lock, void *unlock) {
  return fmi3InstantiateModelExchange(name, token, resources, visible, logging, environment, log);
}

EXPORT void fmi3FreeInstance(void *c) { free(c); }

EXPORT int fmi3EnterInitializationMode(void *c, bool with_tolerance, double tolerance, double start, bool with_stop,
    double stop) { return initialize(c, start); }
EXPORT int fmi3ExitInitializationMode(void *c) { return finish_initialization(c); }
EXPORT int fmi3Terminate(void *c) { ((instance *)c)->now.phase = ENDED; return OK; }
EXPORT int fmi3Reset(void *c) { reset(c); return OK; }

EXPORT int fmi3GetFloat64(void *c, const uint32_t vr[], size_t n, double values[], size_t size) {
  return get(c, vr, n, values, size);
}
EXPORT int fmi3SetFloat64(void *c, const uint32_t vr[], size_t n, const double values[], size_t size) {
  return set(c, vr, n, values, size);
}

EXPORT int fmi3DoStep(void *c, double from, double length, bool forward, bool *event, bool *end, bool *early,
    double *last) {
  int status = advance(c, from, length);
  *event = *end = *early = false;
  *last = time_of(&((instance *)c)->now);
  return status;
}

EXPORT int fmi3GetFMUState(void *c, void **kept) { return get_state(c, kept); }
EXPORT int fmi3SetFMUState(void *c, void *kept) { return set_state(c, kept); }
EXPORT int fmi3FreeFMUState(void *c, void **kept) { free(*kept); *kept = NULL; return OK; }
EXPORT int fmi3SerializedFMUStateSize(void *c, void *kept, size_t *size) { *size = sizeof(state); return OK; }
EXPORT int fmi3SerializeFMUState(void *c, void *kept, uint8_t bytes[], size_t size) {
  return write_state(c, kept, (char *)bytes, size);
}
EXPORT int fmi3DeserializeFMUState(void *c, const uint8_t bytes[], size_t size, void **kept) {
  return read_state(c, (const char *)bytes, size, kept);
}

/* variables of other types do not exist */
#define OTHER(NAME, TYPE) \
  EXPORT int fmi3Get##NAME(void *c, const uint32_t vr[], size_t n, TYPE values[], size_t size) { \
    return n ? fail(c, "all variables have the type Float64") : OK; \
  } \
  EXPORT int fmi3Set##NAME(void *c, const uint32_t vr[], size_t n, const TYPE values[], size_t size) { \
    return n ? fail(c, "all variables have the type Float64") : OK; \
  }
OTHER(Float32, float)
OTHER(Int8, int8_t)
OTHER(UInt8, uint8_t)
OTHER(Int16, int16_t)
OTHER(UInt16, uint16_t)
OTHER(Int32, int32_t)
OTHER(UInt32, uint32_t)
OTHER(Int64, int64_t)
OTHER(UInt64, uint64_t)
OTHER(Boolean, bool)
OTHER(String, char *)

/* what this kind of unit does not have */
#define NONE(NAME, ...) \
  EXPORT int fmi3##NAME(void *c, ##__VA_ARGS__) { return fail(c, "fmi3" #NAME " is not supported"); }
#define REFERENCES const uint32_t vr[], size_t n
NONE(GetBinary, REFERENCES, size_t sizes[], const uint8_t *values[], size_t size)
NONE(SetBinary, REFERENCES, const size_t sizes[], const uint8_t *const values[], size_t size)
NONE(GetClock, REFERENCES, bool values[])
NONE(SetClock, REFERENCES, const bool values[])
NONE(GetNumberOfVariableDependencies, uint32_t vr, size_t *count)
NONE(GetVariableDependencies, uint32_t vr, size_t of[], uint32_t on[], size_t elements[], int kinds[], size_t count)
NONE(GetDirectionalDerivative, REFERENCES, const uint32_t known[], size_t m, const double seed[], size_t seeds,
     double values[], size_t size)
NONE(GetAdjointDerivative, REFERENCES, const uint32_t known[], size_t m, const double seed[], size_t seeds,
     double values[], size_t size)
NONE(GetOutputDerivatives, REFERENCES, const int32_t orders[], double values[], size_t size)
NONE(EnterConfigurationMode)
NONE(ExitConfigurationMode)
NONE(EnterEventMode)
NONE(EnterStepMode)
NONE(EnterContinuousTimeMode)
NONE(EvaluateDiscreteStates)
NONE(UpdateDiscreteStates, bool *needed, bool *end, bool *nominals, bool *changed, bool *defined, double *next)
NONE(CompletedIntegratorStep, bool forward, bool *event, bool *end)
NONE(SetTime, double time)
NONE(SetContinuousStates, const double x[], size_t size)
NONE(GetContinuousStates, double x[], size_t size)
NONE(GetContinuousStateDerivatives, double x[], size_t size)
NONE(GetNominalsOfContinuousStates, double x[], size_t size)
NONE(GetEventIndicators, double x[], size_t size)
NONE(GetNumberOfEventIndicators, size_t *count)
NONE(GetNumberOfContinuousStates, size_t *count)
NONE(GetIntervalDecimal, REFERENCES, double intervals[], int qualifiers[])
NONE(GetIntervalFraction, REFERENCES, uint64_t counters[], uint64_t resolutions[], int qualifiers[])
NONE(GetShiftDecimal, REFERENCES, double shifts[])
NONE(GetShiftFraction, REFERENCES, uint64_t counters[], uint64_t resolutions[])
NONE(SetIntervalDecimal, REFERENCES, const double intervals[])
NONE(SetIntervalFraction, REFERENCES, const uint64_t counters[], const uint64_t resolutions[])
NONE(SetShiftDecimal, REFERENCES, const double shifts[])
NONE(SetShiftFraction, REFERENCES, const uint64_t counters[], const uint64_t resolutions[])
NONE(ActivateModelPartition, uint32_t clock, double time)
