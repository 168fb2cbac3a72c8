/* decode_kernels.c in bfloat16, by AVX512-BF16 and, where it is there, AMX: sums in float32. */

typedef number bf16;
enum { HEADS = 4, KEYS = 4, ROWS = 8, TILE = 16 }; /* of a block, whose sums fill 16 registers; of AMX */

static inline __mmask32 first(long count) { return count >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << count) - 1; }
static inline __m512i load(const bf16 *from, __mmask32 some) { return _mm512_maskz_loadu_epi16(some, from); }
static inline __m512 dot(__m512 sum, __m512i a, __m512i b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
static inline __m512i pair(const bf16 *from) {
    int32_t both;
    memcpy(&both, from, sizeof both);
    return _mm512_set1_epi32(both);
}
static inline void store16(bf16 *to, __m512 x) { _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh(x)); }

/* exp to 1e-7, for x <= 88, NaN of NaN: 2^n times the Taylor series of what is left, at most ln 2 / 2 */
static inline __m512 exponential(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-87.0f), x); /* the second where one is NaN */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    static const float series[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    __m512 sum = _mm512_set1_ps(series[0]);
    for (int i = 1; i < 7; i++) sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(series[i]));
    return _mm512_scalef_ps(sum, n);
}

/* Softmax numerators of logits (T), in bfloat16 and filled up with zeros to a multiple of 16; their sum. */
static float softmax(float *z, bf16 *p, long seen) {
    long filled = (seen + 15) / 16 * 16;
    for (long t = seen; t < filled; t++) z[t] = -__builtin_inff();
    __m512 most = _mm512_loadu_ps(z);
    for (long t = 16; t < filled; t += 16) most = _mm512_max_ps(most, _mm512_loadu_ps(z + t));
    __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(most)), sum = _mm512_setzero_ps();
    for (long t = 0; t < filled; t += 16) {
        __mmask16 real = seen - t >= 16 ? 0xffff : (__mmask16)((1 << (seen - t)) - 1);
        __m512 e = _mm512_maskz_mov_ps(real, exponential(_mm512_sub_ps(_mm512_loadu_ps(z + t), top)));
        sum = _mm512_add_ps(sum, e);
        store16(p + t, e);
    }
    return _mm512_reduce_add_ps(sum);
}

/* Four sums of 16 numbers each. */
static inline __m128 totals(const __m512 *s) {
    __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(s[0], s[1]), _mm512_unpackhi_ps(s[0], s[1]));
    __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(s[2], s[3]), _mm512_unpackhi_ps(s[2], s[3]));
    __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
    __m512 all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

static inline __attribute__((always_inline)) void products(__m512 sum[HEADS][KEYS], const bf16 *const *q,
                                                           const bf16 *const *keys, long width) {
    for (long k = 0; k < width; k += 32) {
        __mmask32 some = first(width - k);
        __m512i key[KEYS];
        for (int j = 0; j < KEYS; j++) key[j] = load(keys[j] + k, some);
        for (int i = 0; i < HEADS; i++) {
            __m512i query = load(q[i] + k, some);
            for (int j = 0; j < KEYS; j++) sum[i][j] = dot(sum[i][j], query, key[j]);
        }
    }
}

/* softmax(q k^T) v of four queries, each over its own first `seen` places, which end in the same 16; a key is a part of
 * `keys` and one of `more`. Scratch of 4 x `wide` floats and bf16, `wide` at least the places + 32. */
static inline __attribute__((always_inline)) void four(const long *seen, const bf16 *const *q, column keys, column more,
                                                       column values, bf16 *const *y, float *z, bf16 *p, long wide) {
    const __m512i front = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i back = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    long last = seen[HEADS - 1] - 1;
    for (long t = 0; t <= last; t += KEYS) {
        const bf16 *at[KEYS], *and[KEYS], *rest[HEADS];
        locate(KEYS, t, last, keys, more, at, and);
        for (int i = 0; i < HEADS; i++) rest[i] = q[i] + keys.width;
        __m512 sum[HEADS][KEYS];
        for (int i = 0; i < HEADS; i++)
            for (int j = 0; j < KEYS; j++) sum[i][j] = _mm512_setzero_ps();
        products(sum, q, at, keys.width);
        products(sum, rest, and, more.width);
        for (int i = 0; i < HEADS; i++) _mm_storeu_ps(z + i * wide + t, totals(sum[i]));
    }
    float share[HEADS];
    for (int i = 0; i < HEADS; i++) share[i] = 1.0f / softmax(z + i * wide, p + i * wide, seen[i]);
    for (long c = 0; c < values.width; c += 32) {
        __mmask32 some = first(values.width - c);
        __m512 low[HEADS], high[HEADS];
        for (int i = 0; i < HEADS; i++) low[i] = high[i] = _mm512_setzero_ps();
        for (long t = 0; t <= last; t += 2) {
            __m512i one = load(values.at + t * values.by + c, some);
            __m512i two = load(values.at + (t < last ? t + 1 : last) * values.by + c, some);
            __m512i left = _mm512_unpacklo_epi16(one, two), right = _mm512_unpackhi_epi16(one, two);
            for (int i = 0; i < HEADS; i++) {
                __m512i both = pair(p + i * wide + t);
                low[i] = dot(low[i], left, both);
                high[i] = dot(high[i], right, both);
            }
        }
        for (int i = 0; i < HEADS; i++) { /* the columns back in their order */
            __m512 whole = _mm512_set1_ps(share[i]);
            __m512 a = _mm512_mul_ps(_mm512_permutex2var_ps(low[i], front, high[i]), whole);
            __m512 b = _mm512_mul_ps(_mm512_permutex2var_ps(low[i], back, high[i]), whole);
            _mm512_mask_storeu_epi16(y[i] + c, some, (__m512i)_mm512_cvtne2ps_pbh(b, a));
        }
    }
}

/* Rows of 16 numbers of 32 bits become columns. */
static inline void transpose(__m512i *r) {
    __m512i s[TILE];
    for (int i = 0; i < TILE; i += 2) {
        s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < TILE; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm512_unpacklo_epi64(s[i + j], s[i + 2 + j]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi64(s[i + j], s[i + 2 + j]);
        }
    for (int j = 0; j < 4; j++) {
        __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88), b = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
        __m512i c = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd), d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
        s[j] = _mm512_shuffle_i32x4(a, b, 0x88), s[8 + j] = _mm512_shuffle_i32x4(a, b, 0xdd);
        s[4 + j] = _mm512_shuffle_i32x4(c, d, 0x88), s[12 + j] = _mm512_shuffle_i32x4(c, d, 0xdd);
    }
    memcpy(r, s, sizeof s);
}

/* Tiles, which compilers want by literal number. */
#define SUM 0
#define SUM2 1
#define KEY 2
#define KEY2 3
#define QUERY 4
#define WEIGHT 5
#define OUT 6
#define OUT2 7

/* `attend` by AMX's tiles of 16 rows, 16 heads at a time: keys and values are read once for all of them. C, K and T are
 * multiples of 32. Scratch of 16 x (T + 32) bf16, and of as many floats with 8 x K behind them. */
void attend_tiles(long rows, long heads, long rank, long width, long places, const int64_t *seen, const bf16 *q,
                  const bf16 *keys, bf16 *y, float *z, bf16 *p) {
    const __m512i front = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i back = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    long wide = places + 32, most = heads < TILE ? heads : TILE;
    struct { uint8_t palette, other[15]; uint16_t bytes[16]; uint8_t rows[16]; } shapes = {.palette = 1};
    for (int tile = SUM; tile <= OUT2; tile++) shapes.bytes[tile] = 64, shapes.rows[tile] = TILE;
    shapes.rows[WEIGHT] = shapes.rows[OUT] = shapes.rows[OUT2] = (uint8_t)most;
    _tile_loadconfig(&shapes);
    bf16 *queries = (bf16 *)(z + TILE * wide); /* turned: pairs of their numbers by heads */
    __m512i left[TILE], right[TILE];
    for (long n = 0; n < rows; n++, keys += places * width)
        for (long h = 0; h < heads; h += TILE) { /* a last block of fewer repeats a head, and forgets it */
            long real = heads - h < most ? heads - h : most, filled = (seen[n] + 15) / 16 * 16;
            const bf16 *from = q + (n * heads + h) * width;
            bf16 *to = y + (n * heads + h) * rank;
            for (long k = 0; k < width; k += 32) {
                for (int i = 0; i < TILE; i++) left[i] = _mm512_loadu_si512(from + (i < real ? i : 0) * width + k);
                transpose(left);
                memcpy(queries + k * TILE, left, sizeof left);
            }
            for (long t = 0; t < seen[n]; t += 32) {
                _tile_zero(SUM);
                _tile_zero(SUM2);
                for (long k = 0; k < width; k += 32) {
                    _tile_loadd(QUERY, queries + k * TILE, 64);
                    _tile_loadd(KEY, keys + t * width + k, width * 2);
                    _tile_loadd(KEY2, keys + (t + TILE) * width + k, width * 2);
                    _tile_dpbf16ps(SUM, KEY, QUERY);
                    _tile_dpbf16ps(SUM2, KEY2, QUERY);
                }
                _tile_stored(SUM, left, 64);
                _tile_stored(SUM2, right, 64);
                transpose(left);
                transpose(right);
                for (int i = 0; i < real; i++) {
                    _mm512_storeu_si512(z + i * wide + t, left[i]);
                    _mm512_storeu_si512(z + i * wide + t + TILE, right[i]);
                }
            }
            float share[TILE];
            for (int i = 0; i < real; i++) {
                share[i] = 1.0f / softmax(z + i * wide, p + i * wide, seen[n]);
                memset(p + i * wide + filled, 0, TILE * sizeof *p);
            }
            for (long c = 0; c < rank; c += 32) {
                _tile_zero(OUT);
                _tile_zero(OUT2);
                for (long t = 0; t < seen[n]; t += 32) {
                    for (int i = 0; i < TILE; i++) { /* neighbouring places side by side */
                        long place = t + 2 * i, last = seen[n] - 1;
                        __m512i one = _mm512_loadu_si512(keys + (place < last ? place : last) * width + c);
                        __m512i two = _mm512_loadu_si512(keys + (place + 1 < last ? place + 1 : last) * width + c);
                        left[i] = _mm512_unpacklo_epi16(one, two), right[i] = _mm512_unpackhi_epi16(one, two);
                    }
                    _tile_loadd(WEIGHT, p + t, wide * 2);
                    _tile_loadd(KEY, left, 64);
                    _tile_loadd(KEY2, right, 64);
                    _tile_dpbf16ps(OUT, WEIGHT, KEY);
                    _tile_dpbf16ps(OUT2, WEIGHT, KEY2);
                }
                _tile_stored(OUT, left, 64);
                _tile_stored(OUT2, right, 64);
                for (int i = 0; i < real; i++) { /* the columns back in their order */
                    __m512 low = (__m512)left[i], high = (__m512)right[i], whole = _mm512_set1_ps(share[i]);
                    __m512 a = _mm512_mul_ps(_mm512_permutex2var_ps(low, front, high), whole);
                    __m512 b = _mm512_mul_ps(_mm512_permutex2var_ps(low, back, high), whole);
                    _mm512_storeu_si512(to + i * rank + c, (__m512i)_mm512_cvtne2ps_pbh(b, a));
                }
            }
        }
    _tile_release();
}

#define ROW 0
#define ROW2 1
#define REST 2
#define REST2 3
#define COLUMN 4
#define COLUMN_REST 5

/* y = x w^T by AMX's tiles, for each of `batch` weights w (O, I), which lie as (O / 16, I / 2, 16, 2): O is a multiple of
 * 16, I of 2. `by`: how far batches and rows of x lie apart, and those of y, which is bfloat16 or, where `wide`,
 * float32. */
void multiply(long batch, long rows, long outs, long ins, int wide, const int64_t *by, const bf16 *x, const bf16 *w,
              void *y) {
    long rest = ins % 32, whole = ins - rest;
    float sum[2 * TILE][TILE];
    for (long n = 0; n < rows; n += 2 * TILE) {
        long some = rows - n < 2 * TILE ? rows - n : 2 * TILE, top = some < TILE ? some : TILE, low = some - top;
        struct { uint8_t palette, other[15]; uint16_t bytes[16]; uint8_t rows[16]; } shapes = {
            .palette = 1,
            .bytes = {64, 64, 2 * rest, 2 * rest, 64, 64, 64, 64},
            .rows = {top, low, top, low, TILE, rest / 2, top, low},
        };
        for (int tile = 0; tile < 8; tile++)
            if (!shapes.bytes[tile] || !shapes.rows[tile]) shapes.bytes[tile] = shapes.rows[tile] = 0;
        _tile_loadconfig(&shapes);
        for (long b = 0; b < batch; b++) {
            const bf16 *at = x + b * by[0] + n * by[1], *weights = w + b * outs * ins;
            for (long o = 0; o < outs; o += TILE) {
                _tile_zero(OUT);
                if (low) _tile_zero(OUT2);
                for (long k = 0; k < whole; k += 32, weights += 32 * TILE) {
                    _tile_loadd(COLUMN, weights, 64);
                    _tile_loadd(ROW, at + k, by[1] * 2);
                    _tile_dpbf16ps(OUT, ROW, COLUMN);
                    if (!low) continue;
                    _tile_loadd(ROW2, at + TILE * by[1] + k, by[1] * 2);
                    _tile_dpbf16ps(OUT2, ROW2, COLUMN);
                }
                if (rest) {
                    _tile_loadd(COLUMN_REST, weights, 64);
                    _tile_loadd(REST, at + whole, by[1] * 2);
                    _tile_dpbf16ps(OUT, REST, COLUMN_REST);
                    if (low) {
                        _tile_loadd(REST2, at + TILE * by[1] + whole, by[1] * 2);
                        _tile_dpbf16ps(OUT2, REST2, COLUMN_REST);
                    }
                    weights += rest * TILE;
                }
                _tile_stored(OUT, sum[0], 64);
                if (low) _tile_stored(OUT2, sum[TILE], 64);
                for (long i = 0; i < some; i++) {
                    long place = b * by[2] + (n + i) * by[3] + o;
                    __m512 found = _mm512_loadu_ps(sum[i]);
                    if (wide) _mm512_storeu_ps((float *)y + place, found);
                    else store16((bf16 *)y + place, found);
                }
            }
        }
    }
    _tile_release();
}

/* out[row] += weight * down(silu(gate(x)) * up(x)) for `rows` rows of one expert. A weight (O, I) lies as
 * (O / 16, I / 2, 16, 2). `rows` is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void block(int rows, long hidden, long inner, const bf16 *const *x,
                                                        const float *weight, const bf16 *gate, const bf16 *up,
                                                        const bf16 *down, float *const *out, bf16 *h) {
    for (long f = 0; f < inner; f += 16) {
        __m512 g[ROWS], u[ROWS];
        for (int r = 0; r < rows; r++) g[r] = u[r] = _mm512_setzero_ps();
        for (long d = 0; d < hidden; d += 2, gate += 32, up += 32) {
            __m512i by_gate = _mm512_loadu_si512(gate), by_up = _mm512_loadu_si512(up);
            for (int r = 0; r < rows; r++) {
                __m512i both = pair(x[r] + d);
                g[r] = dot(g[r], by_gate, both);
                u[r] = dot(u[r], by_up, both);
            }
        }
        for (int r = 0; r < rows; r++) {
            __m512 e = exponential(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_max_ps(g[r], _mm512_set1_ps(-87.0f))));
            __m512 a = _mm512_div_ps(_mm512_mul_ps(g[r], u[r]), _mm512_add_ps(e, _mm512_set1_ps(1.0f)));
            store16(h + r * inner + f, _mm512_mul_ps(a, _mm512_set1_ps(weight[r])));
        }
    }
    for (long d = 0; d < hidden; d += 16) {
        __m512 y[ROWS];
        for (int r = 0; r < rows; r++) y[r] = _mm512_setzero_ps();
        for (long f = 0; f < inner; f += 2, down += 32) {
            __m512i by_down = _mm512_loadu_si512(down);
            for (int r = 0; r < rows; r++) y[r] = dot(y[r], by_down, pair(h + r * inner + f));
        }
        for (int r = 0; r < rows; r++)
            _mm512_storeu_ps(out[r] + d, _mm512_add_ps(_mm512_loadu_ps(out[r] + d), y[r]));
    }
}

static inline __m512 widened(const bf16 *from, __mmask16 some) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, from)), 16));
}

/* The products of four rows of x, or the first again where there are fewer, with w: z (4). */
static inline void score(long real, long hidden, const bf16 *x, const float *w, float *z) {
    __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    for (long d = 0; d < hidden; d += 16) {
        __mmask16 some = (__mmask16)first(hidden - d < 16 ? hidden - d : 16);
        __m512 by = _mm512_maskz_loadu_ps(some, w + d);
        for (int i = 0; i < 4; i++)
            sum[i] = _mm512_fmadd_ps(widened(x + (i < real ? i : 0) * hidden + d, some), by, sum[i]);
    }
    _mm_storeu_ps(z, totals(sum));
}

/* 1 / (1 + exp(-z)) in place. */
static inline void sigmoid(long count, float *z) {
    for (long e = 0; e < count; e += 16) {
        __mmask16 some = (__mmask16)first(count - e < 16 ? count - e : 16);
        __m512 at = _mm512_max_ps(_mm512_set1_ps(-87.0f), _mm512_maskz_loadu_ps(some, z + e));
        __m512 one = _mm512_set1_ps(1.0f);
        at = _mm512_div_ps(one, _mm512_add_ps(one, exponential(_mm512_sub_ps(_mm512_setzero_ps(), at))));
        _mm512_mask_storeu_ps(z + e, some, at);
    }
}

/* y = x / rms(x) * weight by rows, (N, D) rows `stride` apart, bfloat16 or, where `wide`, float32; y in one piece. */
void norm(long rows, long size, long stride, int wide, const void *x, const float *weight, float eps, bf16 *y) {
    for (long n = 0; n < rows; n++, y += size) {
        const float *x32 = (const float *)x + n * stride;
        const bf16 *x16 = (const bf16 *)x + n * stride;
        __m512 sum = _mm512_setzero_ps(), inverse = sum;
        for (int pass = 0; pass < 2; pass++) {
            for (long d = 0; d < size; d += 16) {
                __mmask16 some = (__mmask16)first(size - d < 16 ? size - d : 16);
                __m512 at = wide ? _mm512_maskz_loadu_ps(some, x32 + d) : widened(x16 + d, some);
                if (pass == 0) {
                    sum = _mm512_fmadd_ps(at, at, sum);
                } else {
                    at = _mm512_mul_ps(_mm512_mul_ps(at, inverse), _mm512_maskz_loadu_ps(some, weight + d));
                    _mm256_mask_storeu_epi16(y + d, some, (__m256i)_mm512_cvtneps_pbh(at));
                }
            }
            inverse = _mm512_set1_ps(1.0f / __builtin_sqrtf(_mm512_reduce_add_ps(sum) / size + eps));
        }
    }
}

/* Turns neighbouring pairs of x (N, H, 2 P) in place by their row's angles (N, P), cos and sin side by side; the rows
 * and heads of x lie `by_row` and `by_head` apart. */
void turn(long rows, long heads, long pairs, long by_row, long by_head, bf16 *x, const float *angles) {
    for (long n = 0; n < rows; n++, angles += 2 * pairs)
        for (long h = 0; h < heads; h++) {
            bf16 *at = x + n * by_row + h * by_head;
            for (long p = 0; p < 2 * pairs; p += 16) {
                __mmask16 some = (__mmask16)first(2 * pairs - p < 16 ? 2 * pairs - p : 16);
                __m512 real = widened(at + p, some);
                __m512 angle = _mm512_maskz_loadu_ps(some, angles + p);
                __m512 cosine = _mm512_moveldup_ps(angle), sine = _mm512_movehdup_ps(angle);
                __m512 swapped = _mm512_permute_ps(real, 0xb1);
                __m512 turned = _mm512_fmaddsub_ps(real, cosine, _mm512_mul_ps(swapped, sine));
                _mm256_mask_storeu_epi16(at + p, some, (__m256i)_mm512_cvtneps_pbh(turned));
            }
        }
}
