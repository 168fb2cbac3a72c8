/* decode_kernels.c in float32, by AVX2 and FMA. */

enum { HEADS = 4, KEYS = 3, ROWS = 6, LANES = 8 }; /* of a block, whose sums fill 12 of 16 registers; of a vector */

/* The first of LANES numbers, as many as there are; a constant count costs no mask. */
static inline __m256i first(long count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline __attribute__((always_inline)) __m256 load(const float *from, long count) {
    return count >= LANES ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, first(count));
}
static inline __attribute__((always_inline)) void store(float *to, long count, __m256 x) {
    if (count >= LANES) _mm256_storeu_ps(to, x);
    else _mm256_maskstore_ps(to, first(count), x);
}
static inline float total(__m256 x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

/* exp to 1e-7, for x <= 88, NaN of NaN: 2^n times the Taylor series of what is left, at most ln 2 / 2 */
static inline __m256 exponential(__m256 x) {
    x = _mm256_max_ps(_mm256_set1_ps(-87.0f), x); /* the second where one is NaN */
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    static const float series[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    __m256 sum = _mm256_set1_ps(series[0]);
    for (int i = 1; i < 7; i++) sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(series[i]));
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(sum, _mm256_castsi256_ps(power));
}

/* Softmax numerators of logits (T); their sum. */
static float softmax(float *z, float *p, long seen) {
    for (long t = seen; t % LANES; t++) z[t] = -__builtin_inff();
    __m256 most = _mm256_loadu_ps(z), sum = _mm256_setzero_ps();
    for (long t = LANES; t < seen; t += LANES) most = _mm256_max_ps(most, _mm256_loadu_ps(z + t));
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    __m256 top = _mm256_broadcastss_ps(_mm_max_ss(half, _mm_movehdup_ps(half)));
    for (long t = 0; t < seen; t += LANES) {
        __m256 e = exponential(_mm256_sub_ps(_mm256_loadu_ps(z + t), top));
        if (seen - t < LANES) e = _mm256_and_ps(e, _mm256_castsi256_ps(first(seen - t)));
        sum = _mm256_add_ps(sum, e);
        _mm256_storeu_ps(p + t, e);
    }
    return total(sum);
}

static inline __attribute__((always_inline)) void products(__m256 sum[HEADS][KEYS], const float *const *q,
                                                           const float *const *keys, long k, long count) {
    __m256 key[KEYS];
    for (int j = 0; j < KEYS; j++) key[j] = load(keys[j] + k, count);
    for (int i = 0; i < HEADS; i++) {
        __m256 query = load(q[i] + k, count);
        for (int j = 0; j < KEYS; j++) sum[i][j] = _mm256_fmadd_ps(query, key[j], sum[i][j]);
    }
}

/* `vectors` of LANES columns of the values, the last of `count`: sums over the places by their shares. */
static inline __attribute__((always_inline)) void weigh(int vectors, long count, long places, const float *p, long wide,
                                                        const float *at, long by, const float *share, long c,
                                                        float *const *y) {
    __m256 sum[HEADS][KEYS];
    for (int i = 0; i < HEADS; i++)
        for (int j = 0; j < vectors; j++) sum[i][j] = _mm256_setzero_ps();
    for (long t = 0; t < places; t++) {
        __m256 value[KEYS];
        for (int j = 0; j < vectors; j++) value[j] = load(at + t * by + c + j * LANES, count);
        for (int i = 0; i < HEADS; i++) {
            __m256 weight = _mm256_broadcast_ss(p + i * wide + t);
            for (int j = 0; j < vectors; j++) sum[i][j] = _mm256_fmadd_ps(weight, value[j], sum[i][j]);
        }
    }
    for (int i = 0; i < HEADS; i++)
        for (int j = 0; j < vectors; j++)
            store(y[i] + c + j * LANES, count, _mm256_mul_ps(sum[i][j], _mm256_set1_ps(share[i])));
}

/* softmax(q k^T) v of four queries, each over its own first `seen` places, of which the last has most; a key is a part
 * of `keys` and one of `more`. Scratch of 4 x `wide` floats twice, `wide` at least the places + 32. */
static inline __attribute__((always_inline)) void four(const long *seen, const float *const *q, column keys, column more,
                                                       column values, float *const *y, float *z, float *p, long wide) {
    long last = seen[HEADS - 1] - 1;
    for (long t = 0; t <= last; t += KEYS) {
        const float *at[KEYS], *and[KEYS], *rest[HEADS];
        locate(KEYS, t, last, keys, more, at, and);
        for (int i = 0; i < HEADS; i++) rest[i] = q[i] + keys.width;
        __m256 sum[HEADS][KEYS];
        for (int i = 0; i < HEADS; i++)
            for (int j = 0; j < KEYS; j++) sum[i][j] = _mm256_setzero_ps();
        long k = 0, m = 0;
        for (; k + LANES <= keys.width; k += LANES) {
            products(sum, q, at, k, LANES);
            if (!keys.next) continue;
            const float *soon = keys.next + t * keys.by + KEYS * k; /* KEYS vectors as long as LANES are at once */
            _mm_prefetch((const char *)soon, _MM_HINT_T1);
            _mm_prefetch((const char *)(soon + KEYS * LANES / 2), _MM_HINT_T1);
        }
        if (k < keys.width) products(sum, q, at, k, keys.width - k);
        for (; m + LANES <= more.width; m += LANES) products(sum, rest, and, m, LANES);
        if (m < more.width) products(sum, rest, and, m, more.width - m);
        for (int i = 0; i < HEADS; i++)
            for (int j = 0; j < KEYS; j++) z[i * wide + t + j] = total(sum[i][j]);
    }
    float share[HEADS];
    for (int i = 0; i < HEADS; i++) {
        share[i] = 1.0f / softmax(z + i * wide, p + i * wide, seen[i]);
        for (long t = seen[i]; t <= last; t++) p[i * wide + t] = 0;
    }
    long c = 0;
    for (; c + KEYS * LANES <= values.width; c += KEYS * LANES)
        weigh(KEYS, LANES, last + 1, p, wide, values.at, values.by, share, c, y);
    for (; c + LANES <= values.width; c += LANES)
        weigh(1, LANES, last + 1, p, wide, values.at, values.by, share, c, y);
    if (c < values.width) weigh(1, values.width - c, last + 1, p, wide, values.at, values.by, share, c, y);
}

/* out[row] += weight * down(silu(gate(x)) * up(x)) for `rows` rows of one expert. A weight (O, I) lies as
 * (O / 8, I, 8), O a multiple of 16. `rows` is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void block(int rows, long hidden, long inner, const float *const *x,
                                                        const float *weight, const float *gate, const float *up,
                                                        const float *down, float *const *out, float *h) {
    __m256 a[ROWS], b[ROWS];
    for (long f = 0; f < inner; f += LANES) {
        for (int r = 0; r < rows; r++) a[r] = b[r] = _mm256_setzero_ps();
        for (long d = 0; d < hidden; d++, gate += LANES, up += LANES) {
            __m256 by_gate = _mm256_loadu_ps(gate), by_up = _mm256_loadu_ps(up);
            for (int r = 0; r < rows; r++) {
                __m256 one = _mm256_broadcast_ss(x[r] + d);
                a[r] = _mm256_fmadd_ps(by_gate, one, a[r]);
                b[r] = _mm256_fmadd_ps(by_up, one, b[r]);
            }
        }
        for (int r = 0; r < rows; r++) {
            __m256 e = exponential(_mm256_sub_ps(_mm256_setzero_ps(), _mm256_max_ps(a[r], _mm256_set1_ps(-87.0f))));
            __m256 y = _mm256_div_ps(_mm256_mul_ps(a[r], b[r]), _mm256_add_ps(e, _mm256_set1_ps(1.0f)));
            _mm256_storeu_ps(h + r * inner + f, _mm256_mul_ps(y, _mm256_set1_ps(weight[r])));
        }
    }
    for (long d = 0; d < hidden; d += 2 * LANES, down += inner * LANES) {
        for (int r = 0; r < rows; r++) a[r] = b[r] = _mm256_setzero_ps();
        for (long f = 0; f < inner; f++, down += LANES) {
            __m256 one = _mm256_loadu_ps(down), two = _mm256_loadu_ps(down + inner * LANES);
            for (int r = 0; r < rows; r++) {
                __m256 by = _mm256_broadcast_ss(h + r * inner + f);
                a[r] = _mm256_fmadd_ps(one, by, a[r]);
                b[r] = _mm256_fmadd_ps(two, by, b[r]);
            }
        }
        for (int r = 0; r < rows; r++) {
            _mm256_storeu_ps(out[r] + d, _mm256_add_ps(_mm256_loadu_ps(out[r] + d), a[r]));
            _mm256_storeu_ps(out[r] + d + LANES, _mm256_add_ps(_mm256_loadu_ps(out[r] + d + LANES), b[r]));
        }
    }
}

/* y = x w^T of `rows` rows, 2 x LANES of its columns: w lies as (2, I, LANES), and what is wanted after it at `next`. */
static inline __attribute__((always_inline)) void columns(int rows, long ins, const float *x, long by_x, const float *w,
                                                          const float *next, float *y, long by_y) {
    __m256 a[ROWS], b[ROWS];
    for (int r = 0; r < rows; r++) a[r] = b[r] = _mm256_setzero_ps();
    for (long k = 0; k < ins; k++, w += LANES) {
        __m256 one = _mm256_loadu_ps(w), two = _mm256_loadu_ps(w + ins * LANES);
        if (next) _mm_prefetch((const char *)(next + 2 * LANES * k), _MM_HINT_T1);
        for (int r = 0; r < rows; r++) {
            __m256 by = _mm256_broadcast_ss(x + r * by_x + k);
            a[r] = _mm256_fmadd_ps(one, by, a[r]);
            b[r] = _mm256_fmadd_ps(two, by, b[r]);
        }
    }
    for (int r = 0; r < rows; r++) {
        _mm256_storeu_ps(y + r * by_y, a[r]);
        _mm256_storeu_ps(y + r * by_y + LANES, b[r]);
    }
}

/* y = x w^T for each of `batch` weights w (O, I), which lie as (O / 8, I, 8), O a multiple of 16. `by`: how far batches
 * and rows of x lie apart, and those of y. */
void multiply(long batch, long rows, long outs, long ins, int wide, const int64_t *by, const float *x, const float *w,
              float *y) {
    (void)wide; /* of bfloat16 there are two kinds of y */
    long blocks = (rows + ROWS - 1) / ROWS;
    for (long b = 0; b < batch; b++, x += by[0], y += by[2])
        for (long o = 0; o < outs; o += 2 * LANES, w += 2 * LANES * ins)
            for (long i = 0; i < blocks; i++) { /* of nearly equal heights */
                long n = rows * i / blocks, some = rows * (i + 1) / blocks - n;
                const float *next = i ? 0 : w + 2 * LANES * ins;
#define COLUMNS(r) \
    case r: columns(r, ins, x + n * by[1], by[1], w, next, y + n * by[3] + o, by[3]); break;
                switch (some) { COLUMNS(1) COLUMNS(2) COLUMNS(3) COLUMNS(4) COLUMNS(5) COLUMNS(6) }
            }
}

/* The products of four rows of x, or the first again where there are fewer, with w: z (4). */
static inline void score(long real, long hidden, const float *x, const float *w, float *z) {
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    for (long d = 0; d < hidden; d += LANES) {
        __m256 by = load(w + d, hidden - d);
        for (int i = 0; i < 4; i++)
            sum[i] = _mm256_fmadd_ps(load(x + (i < real ? i : 0) * hidden + d, hidden - d), by, sum[i]);
    }
    for (int i = 0; i < 4; i++) z[i] = total(sum[i]);
}

/* 1 / (1 + exp(-z)) in place. */
static inline void sigmoid(long count, float *z) {
    for (long e = 0; e < count; e += LANES) {
        __m256 at = _mm256_max_ps(_mm256_set1_ps(-87.0f), load(z + e, count - e)), one = _mm256_set1_ps(1.0f);
        at = _mm256_div_ps(one, _mm256_add_ps(one, exponential(_mm256_sub_ps(_mm256_setzero_ps(), at))));
        store(z + e, count - e, at);
    }
}

/* y = x / rms(x) * weight by rows, (N, D) rows `stride` apart; y in one piece. */
void norm(long rows, long size, long stride, int wide, const float *x, const float *weight, float eps, float *y) {
    (void)wide; /* of bfloat16 there are two kinds of x */
    for (long n = 0; n < rows; n++, x += stride, y += size) {
        __m256 sum = _mm256_setzero_ps();
        for (long d = 0; d < size; d += LANES) {
            __m256 at = load(x + d, size - d);
            sum = _mm256_fmadd_ps(at, at, sum);
        }
        __m256 inverse = _mm256_set1_ps(1.0f / __builtin_sqrtf(total(sum) / size + eps));
        for (long d = 0; d < size; d += LANES) {
            __m256 at = _mm256_mul_ps(load(x + d, size - d), inverse);
            store(y + d, size - d, _mm256_mul_ps(at, load(weight + d, size - d)));
        }
    }
}

/* Turns neighbouring pairs of x (N, H, 2 P) in place by their row's angles (N, P), cos and sin side by side; the rows
 * and heads of x lie `by_row` and `by_head` apart. */
void turn(long rows, long heads, long pairs, long by_row, long by_head, float *x, const float *angles) {
    for (long n = 0; n < rows; n++, angles += 2 * pairs)
        for (long h = 0; h < heads; h++) {
            float *at = x + n * by_row + h * by_head;
            for (long p = 0; p < 2 * pairs; p += LANES) {
                long count = 2 * pairs - p;
                __m256 real = load(at + p, count), angle = load(angles + p, count);
                __m256 cosine = _mm256_moveldup_ps(angle), sine = _mm256_movehdup_ps(angle);
                __m256 swapped = _mm256_permute_ps(real, 0xb1);
                store(at + p, count, _mm256_fmaddsub_ps(real, cosine, _mm256_mul_ps(swapped, sine)));
            }
        }
}
