/* @METHOD@, compiled by holonomix. A block holds everything that a run remembers: copy it to save a state. */
#ifndef HOLONOMIX_@NAME@_H
#define HOLONOMIX_@NAME@_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
#ifdef __cplusplus
  alignas(64)
#else
  _Alignas(64)
#endif
  unsigned char bytes[@SIZE@];
} @NAME@_kernel;

@FIELDS@

/* A result of 0 is success; other numbers are those of holonomix.Status, and the state is that of the last good step. */
void @NAME@_init(@NAME@_kernel *k);                  /* the start of the problem */
int32_t @NAME@_start(@NAME@_kernel *k);              /* begin at the q, p, t, dt and parameters in the block */
int32_t @NAME@_step(@NAME@_kernel *k, int64_t count); /* take so many steps */
@PROJECT@

#ifdef __cplusplus
}
#endif

#endif
