/* A chain of n pendula in the plane, unit masses and rods, V = sum of heights: RATTLE by hand.
 *
 * Newton's method for the position multipliers with the matrix G(Q) M^-1 G(q)^T refreshed in every sweep, stopped by the
 * library's rule: max_i |g_i| / sum_j |G_ij| |Q_j| <= eps, with the largest coordinate of a particle for all of its
 * coordinates, or no further progress below sqrt(eps). All linear systems are tridiagonal (Thomas).
 * Usage: chain n steps dt -> seconds per step, mean sweeps, largest residual in units of eps.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int n;
static double *x, *y, *u, *v, *X, *Y, *gx, *gy, *hx, *hy, *lam, *r, *lo, *di, *up, *w, *X0, *Y0, *norm;

static void rods(const double *x, const double *y, double *gx, double *gy) {
  gx[0] = -2 * x[0];
  gy[0] = -2 * y[0];
  for (int i = 1; i < n; i++) {
    gx[i] = 2 * (x[i - 1] - x[i]);
    gy[i] = 2 * (y[i - 1] - y[i]);
  }
}

/* x in place of r; lo[i] couples i to i-1, up[i] to i+1 */
static void thomas(void) {
  double inv = 1 / di[0];
  w[0] = up[0] * inv;
  r[0] *= inv;
  for (int i = 1; i < n; i++) {
    inv = 1 / (di[i] - lo[i] * w[i - 1]);
    w[i] = up[i] * inv;
    r[i] = (r[i] - lo[i] * r[i - 1]) * inv;
  }
  for (int i = n - 2; i >= 0; i--) r[i] -= w[i] * r[i + 1];
}

/* rows h (at Q) against rows g (at q): row i touches particle i-1 with +row and i with -row */
static void gram(const double *hx, const double *hy, const double *gx, const double *gy) {
  for (int i = 0; i < n; i++) {
    double d = hx[i] * gx[i] + hy[i] * gy[i];
    di[i] = i ? 2 * d : d;
    lo[i] = i ? -(hx[i] * gx[i - 1] + hy[i] * gy[i - 1]) : 0;
    up[i] = i < n - 1 ? -(hx[i] * gx[i + 1] + hy[i] * gy[i + 1]) : 0;
  }
}

static void shifted(void) { /* Q = Q0 - G(q)^T lam */
  for (int i = 0; i < n; i++) {
    double ax = -gx[i] * lam[i], ay = -gy[i] * lam[i];
    if (i < n - 1) ax += gx[i + 1] * lam[i + 1], ay += gy[i + 1] * lam[i + 1];
    X[i] = X0[i] - ax;
    Y[i] = Y0[i] - ay;
  }
}

static double residual(void) {
  double worst = 0, px = 0, py = 0;
  for (int i = 0; i < n; i++) {
    double dx = px - X[i], dy = py - Y[i];
    r[i] = dx * dx + dy * dy - 1.0;
    double e = fabs(r[i]) * norm[i];
    worst = e > worst ? e : worst;
    px = X[i], py = Y[i];
  }
  return worst;
}

int main(int argc, char **argv) {
  n = atoi(argv[1]);
  long steps = atol(argv[2]);
  double dt = atof(argv[3]);
  double **all[] = {&x, &y, &u, &v, &X, &Y, &gx, &gy, &hx, &hy, &lam, &r, &lo, &di, &up, &w, &X0, &Y0, &norm};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) *all[k] = calloc(n, sizeof(double));
  for (int i = 0; i < n; i++) {
    x[i] = (i + 1) * sqrt(0.2);
    y[i] = -(i + 1) * sqrt(0.8);
  }
  double eps = DBL_EPSILON, error = 0;
  long sweeps = 0;
  struct timespec t0, t1;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
  for (long s = 0; s < steps; s++) {
    rods(x, y, gx, gy);
    double big = 0;
    for (int i = 0; i < n; i++) {
      v[i] -= dt / 2;
      X0[i] = x[i] + dt * u[i];
      Y0[i] = y[i] + dt * v[i];
      lam[i] = 0;
      w[i] = fmax(fabs(X0[i]), fabs(Y0[i]));
      big = fmax(big, w[i]);
    }
    double least = sqrt(eps) * big;
    for (int i = 0; i < n; i++) {
      double sizes = fmax(w[i], least) + (i ? fmax(w[i - 1], least) : 0);
      norm[i] = 1 / (sizes * (fabs(gx[i]) + fabs(gy[i])));
    }
    shifted();
    double now = residual(), before = INFINITY;
    int k = 0;
    while (now > eps && !(now >= 0.5 * before && now <= sqrt(eps)) && k < 50) {
      rods(X, Y, hx, hy);
      gram(hx, hy, gx, gy);
      thomas();
      for (int i = 0; i < n; i++) lam[i] += r[i];
      shifted();
      before = now;
      now = residual();
      k++;
    }
    sweeps += k;
    for (int i = 0; i < n; i++) {
      double ax = -gx[i] * lam[i], ay = -gy[i] * lam[i];
      if (i < n - 1) ax += gx[i + 1] * lam[i + 1], ay += gy[i + 1] * lam[i + 1];
      u[i] -= ax / dt;
      v[i] -= ay / dt + dt / 2;
    }
    memcpy(x, X, n * sizeof(double));
    memcpy(y, Y, n * sizeof(double));
    rods(x, y, hx, hy);
    gram(hx, hy, hx, hy);
    double pu = 0, pv = 0;
    for (int i = 0; i < n; i++) {
      r[i] = hx[i] * (pu - u[i]) + hy[i] * (pv - v[i]);
      pu = u[i], pv = v[i];
    }
    thomas();
    for (int i = 0; i < n; i++) {
      double ax = -hx[i] * r[i], ay = -hy[i] * r[i];
      if (i < n - 1) ax += hx[i + 1] * r[i + 1], ay += hy[i + 1] * r[i + 1];
      u[i] -= ax;
      v[i] -= ay;
    }
    error = fmax(error, now / eps);
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
  double seconds = (t1.tv_sec - t0.tv_sec) + 1e-9 * (t1.tv_nsec - t0.tv_nsec);
  printf("%.6e %.3f %.3f %.17g %.17g\n", seconds / steps, (double)sweeps / steps, error, x[n - 1], y[n - 1]);
  return 0;
}
