/* Hand-written RATTLE for chains of rods in the plane: what the compiled kernels are measured against.
 *
 * Unit gravity along -y, rods given by their squared lengths, one inverse mass a bob. Each step does what the library's
 * step does: Newton with the full matrix G(Q) M^-1 G(q)^T until max|g| <= tol, then one solve for the momentum.
 * Build: cc -O3 -march=native -shared -fPIC
 */
#include <math.h>

typedef double v8 __attribute__((vector_size(64)));

/* One double pendulum; returns the number of Newton sweeps. */
long pendulum(double *q, double *p, const double *im, const double *l2, double dt, double gravity, double tol, long steps)
{
    double x1 = q[0], y1 = q[1], x2 = q[2], y2 = q[3], a1 = p[0], b1 = p[1], a2 = p[2], b2 = p[3];
    const double i1 = im[0], i2 = im[1], f1 = gravity / i1, f2 = gravity / i2, h = 0.5 * dt, rdt = 1.0 / dt;
    long sweeps = 0;
    for (long n = 0; n < steps; n++) {
        /* directions at q */
        double ux = x1, uy = y1, dx = x2 - x1, dy = y2 - y1;
        b1 -= h * f1;
        b2 -= h * f2;
        double X1 = x1 + dt * i1 * a1, Y1 = y1 + dt * i1 * b1, X2 = x2 + dt * i2 * a2, Y2 = y2 + dt * i2 * b2;
        double la = 0, lb = 0;
        double DX = X2 - X1, DY = Y2 - Y1;
        double ga = 0.5 * (X1 * X1 + Y1 * Y1 - l2[0]), gb = 0.5 * (DX * DX + DY * DY - l2[1]);
        for (int k = 0; k < 50 && fmax(fabs(ga), fabs(gb)) > tol; k++) {
            double r11 = i1 * (X1 * ux + Y1 * uy), r12 = -i1 * (X1 * dx + Y1 * dy);
            double r21 = -i1 * (DX * ux + DY * uy), r22 = (i1 + i2) * (DX * dx + DY * dy);
            double inv = 1.0 / (r11 * r22 - r12 * r21);
            double da = (r22 * ga - r12 * gb) * inv, db = (r11 * gb - r21 * ga) * inv;
            la += da;
            lb += db;
            X1 -= i1 * (ux * da - dx * db);
            Y1 -= i1 * (uy * da - dy * db);
            X2 -= i2 * dx * db;
            Y2 -= i2 * dy * db;
            DX = X2 - X1;
            DY = Y2 - Y1;
            ga = 0.5 * (X1 * X1 + Y1 * Y1 - l2[0]);
            gb = 0.5 * (DX * DX + DY * DY - l2[1]);
            sweeps++;
        }
        la *= rdt;
        lb *= rdt;
        a1 -= ux * la - dx * lb;
        b1 -= uy * la - dy * lb + h * f1;
        a2 -= dx * lb;
        b2 -= dy * lb + h * f2;
        double s11 = i1 * (X1 * X1 + Y1 * Y1), s12 = -i1 * (X1 * DX + Y1 * DY), s22 = (i1 + i2) * (DX * DX + DY * DY);
        double ra = i1 * (X1 * a1 + Y1 * b1), rb = DX * (i2 * a2 - i1 * a1) + DY * (i2 * b2 - i1 * b1);
        double inv = 1.0 / (s11 * s22 - s12 * s12);
        double ma = (s22 * ra - s12 * rb) * inv, mb = (s11 * rb - s12 * ra) * inv;
        a1 -= X1 * ma - DX * mb;
        b1 -= Y1 * ma - DY * mb;
        a2 -= DX * mb;
        b2 -= DY * mb;
        x1 = X1, y1 = Y1, x2 = X2, y2 = Y2;
    }
    q[0] = x1, q[1] = y1, q[2] = x2, q[3] = y2, p[0] = a1, p[1] = b1, p[2] = a2, p[3] = b2;
    return sweeps;
}

static inline v8 vabs(v8 a)
{
    typedef long long m8 __attribute__((vector_size(64)));
    return (v8)((m8)a & 0x7fffffffffffffffLL);
}

static inline int any_above(v8 a, v8 b, double tol)
{
    typedef long long m8 __attribute__((vector_size(64)));
    m8 m = (vabs(a) > tol) | (vabs(b) > tol);
    long long hit = 0;
    for (int k = 0; k < 8; k++) hit |= m[k];
    return hit != 0;
}

/* Eight double pendula side by side; q and p hold 4 vectors each. Lanes that are done sweep along. */
static long pendula8(v8 *q, v8 *p, const double *im, const double *l2, double dt, double gravity, double tol, long steps)
{
    v8 x1 = q[0], y1 = q[1], x2 = q[2], y2 = q[3], a1 = p[0], b1 = p[1], a2 = p[2], b2 = p[3];
    const double i1 = im[0], i2 = im[1], f1 = gravity / i1, f2 = gravity / i2, h = 0.5 * dt, rdt = 1.0 / dt;
    long sweeps = 0;
    for (long n = 0; n < steps; n++) {
        v8 ux = x1, uy = y1, dx = x2 - x1, dy = y2 - y1;
        b1 -= h * f1;
        b2 -= h * f2;
        v8 X1 = x1 + dt * i1 * a1, Y1 = y1 + dt * i1 * b1, X2 = x2 + dt * i2 * a2, Y2 = y2 + dt * i2 * b2;
        v8 la = {0}, lb = {0};
        v8 DX = X2 - X1, DY = Y2 - Y1;
        v8 ga = 0.5 * (X1 * X1 + Y1 * Y1 - l2[0]), gb = 0.5 * (DX * DX + DY * DY - l2[1]);
        for (int k = 0; k < 50 && any_above(ga, gb, tol); k++) {
            v8 r11 = i1 * (X1 * ux + Y1 * uy), r12 = -i1 * (X1 * dx + Y1 * dy);
            v8 r21 = -i1 * (DX * ux + DY * uy), r22 = (i1 + i2) * (DX * dx + DY * dy);
            v8 inv = 1.0 / (r11 * r22 - r12 * r21);
            v8 da = (r22 * ga - r12 * gb) * inv, db = (r11 * gb - r21 * ga) * inv;
            la += da;
            lb += db;
            X1 -= i1 * (ux * da - dx * db);
            Y1 -= i1 * (uy * da - dy * db);
            X2 -= i2 * dx * db;
            Y2 -= i2 * dy * db;
            DX = X2 - X1;
            DY = Y2 - Y1;
            ga = 0.5 * (X1 * X1 + Y1 * Y1 - l2[0]);
            gb = 0.5 * (DX * DX + DY * DY - l2[1]);
            sweeps++;
        }
        la *= rdt;
        lb *= rdt;
        a1 -= ux * la - dx * lb;
        b1 -= uy * la - dy * lb + h * f1;
        a2 -= dx * lb;
        b2 -= dy * lb + h * f2;
        v8 s11 = i1 * (X1 * X1 + Y1 * Y1), s12 = -i1 * (X1 * DX + Y1 * DY), s22 = (i1 + i2) * (DX * DX + DY * DY);
        v8 ra = i1 * (X1 * a1 + Y1 * b1), rb = DX * (i2 * a2 - i1 * a1) + DY * (i2 * b2 - i1 * b1);
        v8 inv = 1.0 / (s11 * s22 - s12 * s12);
        v8 ma = (s22 * ra - s12 * rb) * inv, mb = (s11 * rb - s12 * ra) * inv;
        a1 -= X1 * ma - DX * mb;
        b1 -= Y1 * ma - DY * mb;
        a2 -= DX * mb;
        b2 -= DY * mb;
        x1 = X1, y1 = Y1, x2 = X2, y2 = Y2;
    }
    q[0] = x1, q[1] = y1, q[2] = x2, q[3] = y2, p[0] = a1, p[1] = b1, p[2] = a2, p[3] = b2;
    return sweeps;
}

/* A batch, 8 at a time; q and p are (groups, 4, 8), aligned to 64 bytes. */
long pendula(double *q, double *p, const double *im, const double *l2, double dt, double gravity, double tol, long steps,
             long groups)
{
    long sweeps = 0;
    for (long g = 0; g < groups; g++)
        sweeps += pendula8((v8 *)(q + 32 * g), (v8 *)(p + 32 * g), im, l2, dt, gravity, tol, steps);
    return sweeps;
}

#define LINKS 10

/* A chain of LINKS rods from the origin: constraint matrices are tridiagonal. */
long chain(double *q, double *p, const double *im, const double *l2, double dt, double gravity, double tol, long steps)
{
    enum { N = LINKS };
    const double h = 0.5 * dt, rdt = 1.0 / dt;
    long sweeps = 0;
    double x[N], y[N], a[N], b[N];
    for (int i = 0; i < N; i++) x[i] = q[2 * i], y[i] = q[2 * i + 1], a[i] = p[2 * i], b[i] = p[2 * i + 1];
    for (long n = 0; n < steps; n++) {
        double dx[N], dy[N], X[N], Y[N], DX[N], DY[N], g[N], lam[N], lo[N], di[N], up[N];
        for (int i = 0; i < N; i++) {
            dx[i] = x[i] - (i ? x[i - 1] : 0);
            dy[i] = y[i] - (i ? y[i - 1] : 0);
            b[i] -= h * gravity / im[i];
            X[i] = x[i] + dt * im[i] * a[i];
            Y[i] = y[i] + dt * im[i] * b[i];
            lam[i] = 0;
        }
        double norm = 0;
        for (int i = 0; i < N; i++) {
            DX[i] = X[i] - (i ? X[i - 1] : 0);
            DY[i] = Y[i] - (i ? Y[i - 1] : 0);
            g[i] = 0.5 * (DX[i] * DX[i] + DY[i] * DY[i] - l2[i]);
            norm = fmax(norm, fabs(g[i]));
        }
        for (int k = 0; k < 50 && norm > tol; k++) {
            for (int i = 0; i < N; i++) {
                di[i] = (im[i] + (i ? im[i - 1] : 0)) * (DX[i] * dx[i] + DY[i] * dy[i]);
                if (i < N - 1) up[i] = -im[i] * (DX[i] * dx[i + 1] + DY[i] * dy[i + 1]);
                if (i) lo[i] = -im[i - 1] * (DX[i] * dx[i - 1] + DY[i] * dy[i - 1]);
            }
            double s[N];
            double piv = 1.0 / di[0];
            s[0] = g[0] * piv;
            for (int i = 1; i < N; i++) {
                up[i - 1] *= piv;
                piv = 1.0 / (di[i] - lo[i] * up[i - 1]);
                s[i] = (g[i] - lo[i] * s[i - 1]) * piv;
            }
            for (int i = N - 2; i >= 0; i--) s[i] -= up[i] * s[i + 1];
            for (int i = 0; i < N; i++) {
                lam[i] += s[i];
                double fx = dx[i] * s[i], fy = dy[i] * s[i];
                if (i < N - 1) fx -= dx[i + 1] * s[i + 1], fy -= dy[i + 1] * s[i + 1];
                X[i] -= im[i] * fx;
                Y[i] -= im[i] * fy;
            }
            norm = 0;
            for (int i = 0; i < N; i++) {
                DX[i] = X[i] - (i ? X[i - 1] : 0);
                DY[i] = Y[i] - (i ? Y[i - 1] : 0);
                g[i] = 0.5 * (DX[i] * DX[i] + DY[i] * DY[i] - l2[i]);
                norm = fmax(norm, fabs(g[i]));
            }
            sweeps++;
        }
        for (int i = 0; i < N; i++) {
            double fx = dx[i] * lam[i], fy = dy[i] * lam[i];
            if (i < N - 1) fx -= dx[i + 1] * lam[i + 1], fy -= dy[i + 1] * lam[i + 1];
            a[i] -= fx * rdt;
            b[i] -= fy * rdt + h * gravity / im[i];
        }
        double r[N];
        for (int i = 0; i < N; i++) {
            double vx = im[i] * a[i] - (i ? im[i - 1] * a[i - 1] : 0), vy = im[i] * b[i] - (i ? im[i - 1] * b[i - 1] : 0);
            r[i] = DX[i] * vx + DY[i] * vy;
            di[i] = (im[i] + (i ? im[i - 1] : 0)) * (DX[i] * DX[i] + DY[i] * DY[i]);
            if (i < N - 1) up[i] = -im[i] * (DX[i] * DX[i + 1] + DY[i] * DY[i + 1]);
        }
        double piv = 1.0 / di[0];
        double mu[N];
        mu[0] = r[0] * piv;
        for (int i = 1; i < N; i++) {
            double low = up[i - 1];
            up[i - 1] *= piv;
            piv = 1.0 / (di[i] - low * up[i - 1]);
            mu[i] = (r[i] - low * mu[i - 1]) * piv;
        }
        for (int i = N - 2; i >= 0; i--) mu[i] -= up[i] * mu[i + 1];
        for (int i = 0; i < N; i++) {
            double fx = DX[i] * mu[i], fy = DY[i] * mu[i];
            if (i < N - 1) fx -= DX[i + 1] * mu[i + 1], fy -= DY[i + 1] * mu[i + 1];
            a[i] -= fx;
            b[i] -= fy;
            x[i] = X[i];
            y[i] = Y[i];
        }
    }
    for (int i = 0; i < N; i++) q[2 * i] = x[i], q[2 * i + 1] = y[i], p[2 * i] = a[i], p[2 * i + 1] = b[i];
    return sweeps;
}
