/* What decoding does on a CPU beside its large products: attention of single queries over latents and of whole prompts,
 * routing, experts of a few rows each, RMSNorm, RoPE. oneDNN wants a call for every expert, and torch's small operations
 * cost their calls; docs/model.md has the figures. A library is built for each type of number.
 *
 * Letters as in decode.py: N rows, T places, H heads, K = C + R numbers of a place, C of them also values; D hidden,
 * E experts, F expert width. Every row's result is its own: company changes no bit.
 */

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifdef BFLOAT16
typedef uint16_t number;
#else
typedef float number;
#endif

/* Vectors that lie `by` apart; those that will be wanted afterwards, to be fetched from memory meanwhile. */
typedef struct { const number *at; long by, width; const number *next; } column;

/* Where the two parts of `count` keys from number `t` on begin; beyond the last it is the last once more. */
static inline __attribute__((always_inline)) void locate(int count, long t, long last, column keys, column more,
                                                         const number **at, const number **and) {
    for (int j = 0; j < count; j++) {
        long place = t + j < last ? t + j : last;
        at[j] = keys.at + place * keys.by;
        and[j] = more.at + place * more.by;
    }
}

#ifdef BFLOAT16
#include "decode_bf16.h"
#else
#include "decode_float32.h"
#endif

/* softmax(q k^T) k[:, :C] for each row over its own first `seen` places; the scale lies in q.
 * q (N, H, K), keys (N, T, K), y (N, H, C), H a multiple of 4; scratch of 4 x (T + 32) floats and numbers. */
void attend(long rows, long heads, long rank, long width, long places, const int64_t *seen, const number *q,
            const number *keys, number *y, float *z, number *p) {
    for (long n = 0; n < rows; n++, keys += places * width)
        for (long h = 0; h < heads; h += HEADS, q += HEADS * width, y += HEADS * rank) {
            long until[HEADS] = {seen[n], seen[n], seen[n], seen[n]};
            const number *from[HEADS] = {q, q + width, q + 2 * width, q + 3 * width};
            number *to[HEADS] = {y, y + rank, y + 2 * rank, y + 3 * rank};
            column whole = {keys, width, width, keys + places * width}, none = {keys, 0, 0}, values = {keys, width, rank};
            four(until, from, whole, none, values, to, z, p, places + 32);
        }
}

/* Causal attention of whole prompts; the scale lies in q. q (P, S, H, X + R), up (P, S, H, X + V) the keys' parts and
 * the values, rotated (P, S, R) with its vectors `by` apart, y (P, S, H, V); scratch as for S places, room for V. */
void prompts(long count, long length, long heads, long nope, long rope, long value, long by, const number *q,
             const number *up, const number *rotated, number *y, float *z, number *p, number *nobody) {
    long wide = length + 32, by_q = heads * (nope + rope), by_up = heads * (nope + value), by_y = heads * value;
    for (long n = 0; n < count; n++) {
        for (long h = 0; h < heads; h++) {
            const number *own = up + h * (nope + value);
            column keys = {own, by_up, nope}, turned = {rotated, by, rope}, values = {own + nope, by_up, value};
            for (long s = 0; s < length; s += HEADS) {
                long until[HEADS];
                const number *from[HEADS];
                number *to[HEADS];
                for (int i = 0; i < HEADS; i++) { /* beyond the end the last query once more */
                    long query = s + i < length ? s + i : length - 1;
                    until[i] = query + 1;
                    from[i] = q + query * by_q + h * (nope + rope);
                    to[i] = s + i < length ? y + query * by_y + h * value : nobody;
                }
                four(until, from, keys, turned, values, to, z, p, wide);
            }
        }
        q += length * by_q, up += length * by_up, rotated += length * by, y += length * by_y;
    }
}

/* Weights (B, O, W) as (B, O / lanes, W, lanes): `lanes` rows side by side, word by word; a word is a number or a pair.
 * Blocks of eight rows from `start` to `end`, of all B; `by`: bytes between weights, and between rows. */
void lay(long start, long end, long outs, long words, long lanes, const int64_t *by, const char *from, float *to) {
    for (long n = start; n < end; n++) {
        long o = n * 8 % outs;
        const char *row = from + n * 8 / outs * by[0] + o * by[1];
        float *at = to + (n * 8 - o % lanes) * words + o % lanes;
        long w = 0;
        for (; w + 8 <= words; w += 8) {
            __m256 a[8], b[8];
            for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps((const float *)(row + i * by[1]) + w);
            for (int i = 0; i < 8; i += 2) {
                b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
                b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
            }
            for (int i = 0; i < 8; i += 4)
                for (int j = 0; j < 2; j++) {
                    a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0x44);
                    a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0xEE);
                }
            for (int i = 0; i < 4; i++) {
                _mm256_storeu_ps(at + (w + i) * lanes, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
                _mm256_storeu_ps(at + (w + i + 4) * lanes, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
            }
        }
        for (; w < words; w++)
            for (int i = 0; i < 8; i++) memcpy(at + w * lanes + i, row + i * by[1] + 4 * w, 4);
    }
}

/* x, which is no NaN, rounded to bfloat16, halves to even. */
static inline __m256 to_bfloat16(__m256 x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(0xffff0000)));
}

/* Groups of 32 floats as INT4 serves them: quantize.py's numbers, bit for bit. */
void round_int4(long groups, const float *from, float *to) {
    __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 zero = _mm256_setzero_ps(), low = _mm256_set1_ps(-8), high = _mm256_set1_ps(7);
    for (long g = 0; g < groups; g++, from += 32, to += 32) {
        __m256 x[4];
        __m256i most = _mm256_setzero_si256(); /* magnitudes are in the order of their bits, infinity and NaN last */
        for (int i = 0; i < 4; i++) {
            x[i] = _mm256_loadu_ps(from + 8 * i);
            most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
        }
        most = _mm256_max_epi32(most, _mm256_permute2x128_si256(most, most, 1));
        most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0x4E));
        most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0xB1));
        if (_mm256_extract_epi32(most, 0) >= 0x7f800000) { /* a scale that is not finite makes NaN of all */
            for (int i = 0; i < 32; i++) to[i] = __builtin_nanf("");
            continue;
        }
        __m256 scale = to_bfloat16(_mm256_div_ps(_mm256_castsi256_ps(most), _mm256_set1_ps(7.5f)));
        scale = _mm256_blendv_ps(scale, _mm256_set1_ps(0.0078125f), _mm256_cmp_ps(scale, zero, _CMP_EQ_OQ));
        for (int i = 0; i < 4; i++) {
            __m256 step = _mm256_min_ps(_mm256_max_ps(_mm256_div_ps(x[i], scale), low), high);
            step = _mm256_round_ps(step, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
            _mm256_storeu_ps(to + 8 * i, to_bfloat16(_mm256_mul_ps(_mm256_add_ps(step, zero), scale)));
        }
    }
}

/* out (N, D) += the sum over a row's experts of weight * expert(x). chosen and weights (N, top), x (N, D); D and F are
 * multiples of 16; scratch of ROWS x F numbers. */
void mix(long rows, long top, long experts, long hidden, long inner, const int64_t *chosen, const float *weights,
         const number *x, const number *gate, const number *up, const number *down, float *out, number *h) {
    long size = hidden * inner;
    for (long e = 0; e < experts; e++, gate += size, up += size, down += size)
        for (long place = 0; place < rows * top;) {
            const number *from[ROWS];
            float weight[ROWS], *to[ROWS];
            int found = 0;
            for (; place < rows * top && found < ROWS; place++)
                if (chosen[place] == e) {
                    from[found] = x + place / top * hidden;
                    to[found] = out + place / top * hidden;
                    weight[found++] = weights[place];
                }
#define CASE(n) \
    case n: if (n <= ROWS) block(n, hidden, inner, from, weight, gate, up, down, to, h); break;
            switch (found) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) }
        }
}

/* The `top` experts of each row by sigmoid(x w^T) + bias, and their scores as shares of `scaling`; behind them the
 * experts from `experts` on, which everyone takes, at weight 1. x (N, D), w (E, D), chosen and weights (N, all);
 * scratch (N, E). */
void route(long rows, long experts, long hidden, long top, long all, float scaling, const number *x, const float *w,
           const float *bias, int64_t *chosen, float *weights, float *scores) {
    for (long e = 0; e < experts; e++, w += hidden)
        for (long n = 0; n < rows; n += 4) {
            float z[4];
            score(rows - n, hidden, x + n * hidden, w, z);
            for (int i = 0; i < 4 && n + i < rows; i++) scores[(n + i) * experts + e] = z[i];
        }
    for (long n = 0; n < rows; n++, scores += experts, chosen += all, weights += all) {
        sigmoid(experts, scores);
        float sum = 1e-20f;
        for (long k = 0; k < top; k++) {
            long best = -1;
            float most = 0;
            for (long e = 0; e < experts; e++) {
                int taken = 0;
                for (long j = 0; j < k; j++) taken |= chosen[j] == e;
                float wish = scores[e] + bias[e];
                if (wish != wish) wish = __builtin_inff(); /* NaN comes first, as in torch's topk: it has to show */
                if (!taken && (best < 0 || wish > most)) best = e, most = wish;
            }
            chosen[k] = best;
            weights[k] = scores[best];
            sum += scores[best];
        }
        for (long k = 0; k < top; k++) weights[k] *= scaling / sum;
        for (long k = top; k < all; k++) {
            chosen[k] = experts + k - top;
            weights[k] = 1.0f;
        }
    }
}
