/* The integrals of gaussian_choice.py for many arms, eight at a time.

   The same rule in the same steps as there: arms that cannot be best are left out, the range ends
   where all are surely above or below, and equal steps go through it. Only how the normal
   distribution function is found differs, as numpy has none that uses the processor's vectors:

       Phi(-t) = exp(-t^2 / 2) R(t),    R(t) = erfcx(t / sqrt 2) / 2    for t >= 0,

   where (t + 4) R(t) is smooth in y = (t - 4) / (t + 4), which maps [0, inf) to [-1, 1): its
   Chebyshev series is down to 5e-15 after 21 terms (Shepherd, Laframboise 1981, "Chebyshev
   approximation of (1 + 2x) exp(x^2) erfc x"). The exponential needed for it is the density too.

   Plain C without Python: ctypes calls it. Built by tools/build_compiled.py where there is a
   compiler. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { DONE = 0, LEFT_TO_NUMPY = 1, FEW_POSSIBLE = 2 };

#define LANES 8
#define FEW 3                   /* arms: these have closed forms */
#define MOST_STEPS 2000.0       /* in the range; panels need fewer than that */
#define SEEN_ENOUGH 2e-6        /* the others as in gaussian_choice.py */
#define TAIL_SDS 8.0
#define NEGLIGIBLE 6.3e-16
#define NOTHING 1e-280
#define HUGE_SCALE 1e150
#define SMALLEST_SD 1e-9
#define HALVINGS 8
#define FARTHEST 37.0           /* spreads; Phi(-37) = 6e-300 */
#define FAR_BELOW -1e300        /* where the arms stand that fill up the last eight */

/* One function for each kind of vectors; the loader takes the widest that the processor has. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

static const double RATIO[21] = {
    0.7552851304157506,      -0.6078966419718673,     0.3871374007424215,
    -0.18652185796145454,    0.06039657488256644,     -0.00754018892837386,
    -0.0034796922350576356,  0.0016308180841548285,   0.00013334323640921145,
    -0.00023109295282961134, -1.9031365263494377e-06, 3.513845158846198e-05,
    7.013963222331888e-07,   -5.908225530193141e-06,  -6.002848742191028e-07,
    1.0079851973866683e-06,  2.351294479530888e-07,   -1.471442919551754e-07,
    -5.672551226407121e-08,  1.2864124437671246e-08,  6.7797696255966974e-09,
};

/* 1/13!, 1/12!, .. 1/1!, 1/0! */
static const double TAYLOR[14] = {
    1.6059043836821613e-10, 2.08767569878681e-09,   2.505210838544172e-08, 2.755731922398589e-07,
    2.7557319223985893e-06, 2.48015873015873e-05,   0.0001984126984126984, 0.001388888888888889,
    0.008333333333333333,   0.041666666666666664,   0.16666666666666666,   0.5,
    1.0,                    1.0,
};

/* As fmax of two numbers, in line: that one looks for NaN. */
static inline double larger(double most, double next)
{
    return next > most ? next : most;
}

/* exp(x) for -708 <= x <= 0: 2^n e^r with |r| <= ln(2) / 2. */
static inline double exponential(double x)
{
    const double rounding = 6755399441055744.0; /* 1.5 * 2^52: its last bits are the whole part */
    double n = x * 1.4426950408889634 + rounding;
    int64_t bits;
    memcpy(&bits, &n, sizeof bits);
    n -= rounding;
    double r = x - n * 0.693147180369123816490;
    r -= n * 1.90821492927058770002e-10;
    double sum = TAYLOR[0];
#pragma GCC unroll 14
    for (int i = 1; i < 14; i++)
        sum = sum * r + TAYLOR[i];
    bits = (int64_t)((uint64_t)bits << 52) + 0x3ff0000000000000;
    double power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

/* R(t), t >= 0. */
static inline double ratio(double t)
{
    double part = 1.0 / (t + 4.0), y = 1.0 - 8.0 * part, sum = RATIO[20];
#pragma GCC unroll 20
    for (int i = 19; i >= 0; i--)
        sum = sum * y + RATIO[i];
    return sum * part;
}

/* The density at z, but for 1 / sqrt(2 pi), and the share below z. */
static inline double below(double z, double *density)
{
    double t = fabs(z);
    t = t < FARTHEST ? t : FARTHEST;
    *density = exponential(-0.5 * t * t);
    double tail = *density * ratio(t);
    return z < 0.0 ? tail : 1.0 - tail;
}

/* The probability that all scores lie below t. */
WIDEST static double all_below(double t, long count, const double *means, const double *inverse)
{
    double product = 1.0;
    count &= -(long)LANES;
#pragma omp simd reduction(* : product)
    for (long a = 0; a < count; a++) {
        double density;
        product *= below((t - means[a]) * inverse[a], &density);
    }
    return product;
}

/* The sum over the nodes of phi_a times all Phi but its own, for every arm. */
WIDEST static void add_nodes(double first, double step, long nodes, long count,
                             const double *means, const double *inverse, double *each,
                             double *mass)
{
    count &= -(long)LANES;
    for (long a = 0; a < count; a++)
        mass[a] = 0.0;
    for (long node = 0; node < nodes; node++) {
        double t = first + step * (double)node, product = 1.0;
#pragma omp simd reduction(* : product)
        for (long a = 0; a < count; a++) {
            double density, share = below((t - means[a]) * inverse[a], &density);
            each[a] = density / share;
            product *= share;
        }
        for (long a = 0; a < count; a++)
            mass[a] += product * each[a];
    }
}

/* Keep the arms whose upper end reaches `least`; return how many. */
static long keep(long count, double least, double *means, double *sds, int64_t *place)
{
    long kept = 0;
    for (long a = 0; a < count; a++)
        if (means[a] + TAIL_SDS * sds[a] >= least) {
            means[kept] = means[a];
            sds[kept] = sds[a];
            place[kept++] = place[a];
        }
    return kept;
}

static int say_who_is_left(long all, long kept, const int64_t *place, double *probabilities)
{
    for (long a = 0; a < all; a++)
        probabilities[a] = 0.0;
    for (long a = 0; a < kept; a++)
        probabilities[place[a]] = 1.0;
    return FEW_POSSIBLE;
}

/* Write the probability of each of `all` independent N(mean, sd^2) to be the largest.

   `room` holds 6 (all + 8) doubles. Returns DONE; LEFT_TO_NUMPY where spreads differ too much for
   equal steps or numbers are out of all proportion; FEW_POSSIBLE, with ones in `probabilities` for
   the arms, three at most, that can be best. */
int steersman_gaussian_choice(long all, const double *of_means, const double *of_sds,
                              double *probabilities, double *room)
{
    long size = all + LANES, count = all;
    double *means = room, *sds = means + size, *each = sds + size, *mass = each + size;
    double *finer = mass + size;
    int64_t *place = (int64_t *)(finer + size);

    double surely = -INFINITY, nothing = 0.0;
#pragma omp simd reduction(+ : nothing)
    for (long a = 0; a < all; a++)
        nothing += 0.0 * of_means[a] + 0.0 * of_sds[a];
    if (nothing != 0.0) /* NaN: some number is none, or infinite */
        return LEFT_TO_NUMPY;
    for (long a = 0; a < all; a++) {
        means[a] = of_means[a];
        sds[a] = of_sds[a];
        place[a] = a;
        surely = larger(surely, means[a] - TAIL_SDS * sds[a]);
    }
    /* What cannot be best must not say how narrow is too narrow. */
    count = keep(count, surely - SMALLEST_SD * fabs(surely) - NOTHING, means, sds, place);
    if (count <= FEW)
        return say_who_is_left(all, count, place, probabilities);

    double farthest = 0.0, widest = 0.0;
    for (long a = 0; a < count; a++) {
        farthest = larger(farthest, fabs(means[a]));
        widest = larger(widest, sds[a]);
    }
    double scale = farthest + widest;
    if (!(scale >= NOTHING && scale <= HUGE_SCALE))
        return LEFT_TO_NUMPY;

    double lowest = -INFINITY, highest = -INFINITY, narrowest = INFINITY;
    for (long a = 0; a < count; a++) {
        sds[a] = larger(sds[a], SMALLEST_SD * scale);
        lowest = larger(lowest, means[a] - TAIL_SDS * sds[a]);
        highest = larger(highest, means[a] + TAIL_SDS * sds[a]);
    }
    for (long a = 0; a < count; a++)
        each[a] = 1.0 / sds[a];
    for (long a = count; a % LANES; a++) {
        means[a] = FAR_BELOW;
        each[a] = 1.0;
    }
    long filled = (count + LANES - 1) / LANES * LANES;
    double above = highest;
    for (int i = 0; i < HALVINGS; i++) {
        double middle = 0.5 * (lowest + above);
        if (all_below(middle, filled, means, each) <= NEGLIGIBLE)
            lowest = middle;
        else
            above = middle;
    }
    count = keep(count, lowest, means, sds, place);
    if (count <= FEW)
        return say_who_is_left(all, count, place, probabilities);

    for (long a = 0; a < count; a++) {
        narrowest = sds[a] < narrowest ? sds[a] : narrowest;
        sds[a] = 1.0 / sds[a];
    }
    for (long a = count; a % LANES; a++) {
        means[a] = FAR_BELOW;
        sds[a] = 1.0;
    }
    filled = (count + LANES - 1) / LANES * LANES;

    double length = highest - lowest;
    double steps = length / narrowest / 0.6 * (1.0 + 0.37 * log((double)count));
    if (!(steps <= MOST_STEPS))
        return LEFT_TO_NUMPY;
    if (steps < 2.0 * LANES)
        steps = 2.0 * LANES;
    /* Half of them, where every other one of these says nearly the same. */
    long quarter = (long)ceil(0.25 * steps);
    double step = length / (double)quarter, most = 0.0, apart = 0.0;
    add_nodes(lowest, step, quarter + 1, filled, means, sds, each, mass);
    add_nodes(lowest + 0.5 * step, step, quarter, filled, means, sds, each, finer);
    for (long a = 0; a < count; a++) {
        apart = larger(apart, fabs(mass[a] - finer[a]) * sds[a]);
        mass[a] += finer[a];
        most = larger(most, mass[a] * sds[a]);
    }
    if (apart > SEEN_ENOUGH * most) {
        step *= 0.5;
        add_nodes(lowest + 0.5 * step, step, 2 * quarter, filled, means, sds, each, finer);
        for (long a = 0; a < count; a++)
            mass[a] += finer[a];
    }
    double sum = 0.0;
    for (long a = 0; a < count; a++)
        sum += mass[a] *= sds[a];
    if (!(sum > 0.0))
        return LEFT_TO_NUMPY;
    for (long a = 0; a < all; a++)
        probabilities[a] = 0.0;
    for (long a = 0; a < count; a++)
        probabilities[place[a]] = mass[a] / sum;
    return DONE;
}
