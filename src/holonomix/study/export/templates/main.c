/* cc -std=c11 main.c @NAME@.o -lm -o main && ./main 1000 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "@NAME@.h"

static void show(const char *name, const double *x, int count) {
  for (int i = 0; i < count; i++) {
    uint64_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    printf("%s[%d] = %.17g  %016" PRIx64 "\n", name, i, x[i], bits);
  }
}

int main(int argc, char **argv) {
  static @NAME@_kernel k;
  @NAME@_init(&k);
  int32_t status = @NAME@_step(&k, argc > 1 ? atoll(argv[1]) : 1000);
  printf("status = %d\n", (int)status);
  show("t", @NAME@_t(&k), 1);
  show("q", @NAME@_q(&k), @NAME@_q_count);
  show("p", @NAME@_p(&k), @NAME@_p_count);
  return status != 0;
}
