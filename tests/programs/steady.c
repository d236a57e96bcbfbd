// Training that repeats itself: `steady FIRST COUNT` trains for each of COUNT seeds and prints one line for each: the seed, a digest of every number
// it read back, and how many of their 1000th parts were finite.
//
// Each iteration is like the last: on the way forward every layer reads its weights and leaves an activation, on the way back it reads both again, and a few
// weights are changed behind that. On the way back nobody has to leave, and on the way forward the link has no time for all who must; so who plans an
// iteration ahead copies weights to the host on the way back, and gives the copies up of those that are changed.
#include "caching_allocator.h"
#include <string.h>

enum { LAYERS = 44, ITERATIONS = 10, PIECE = 1 << 11, PARTS = 4, THINK = 6, TENSOR = 2 * MIB };

static float *stage;

static uint64_t state;
static uint64_t below(uint64_t n) { // xorshift64*
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return ((state * 0x2545f4914f6cdd1d) >> 11) % n;
}

// A tensor is used in so many parts of it.
static float *part(const block *b, int k) { return (float *)b->at + (size_t)k * (TENSOR / 4 / PARTS); }
static void begin(const block *to, const block *from) {
    for (int k = 0; k < PARTS; k++) copy(part(to, k), part(from, k), PIECE, NULL);
}
static void add(const block *to, const block *from, float times) {
    for (int k = 0; k < PARTS; k++) axpy(part(to, k), part(from, k), PIECE, times, NULL);
}
// Launches that take time and move nothing.
static void think(const block *scratch) {
    for (int k = 0; k < THINK; k++) scale(part(scratch, 0), 64, 0.5f, NULL);
}

static void workload(uint64_t seed) {
    state = (seed + 1) * 0x9e3779b97f4a7c15;
    for (int k = 0; k < 8; k++) below(2);
    int layers = LAYERS - (int)below(6);
    block *weight[LAYERS], *out[LAYERS + 1], *scratch = take(TENSOR, 0), *input = take(TENSOR, 0);
    for (int k = 0; k < PARTS; k++) fill(part(input, k), PIECE, (float)below(9) * 1e-4f, NULL), fill(part(scratch, k), PIECE, 1, NULL);
    for (int l = 0; l < layers; l++) {
        weight[l] = take(TENSOR, 0);
        for (int k = 0; k < PARTS; k++) fill(part(weight[l], k), PIECE, (float)below(1000) * 1e-6f, NULL);
    }
    uint64_t digest = seed, read = 0, finite = 0, changed = 2 + below(4);
    for (int n = 0; n < ITERATIONS; n++) {
        out[0] = input;
        for (int l = 0; l < layers; l++) {
            out[l + 1] = take(TENSOR, 0);
            begin(out[l + 1], out[l]);
            add(out[l + 1], weight[l], 0.5f);
        }
        block *gradient = take(TENSOR, 0);
        begin(gradient, out[layers]);
        for (int l = layers - 1; l >= 0; l--) {
            add(gradient, out[l + 1], -0.25f), add(gradient, weight[l], 0.125f);
            put_back(out[l + 1], 1, NULL);
            think(scratch);
        }
        for (int l = 0; l < layers; l++) if ((uint64_t)l % changed == 0) add(weight[l], gradient, 1e-3f);
        for (int k = 0; k < PARTS; k++) OK(cudaMemcpy(stage + k * PIECE, part(gradient, k), PIECE * 4, DEVICE_TO_HOST));
        put_back(gradient, 1, NULL);
        for (int i = 0; i < PARTS * PIECE; i++) {
            uint32_t word;
            memcpy(&word, &stage[i], 4);
            digest = (digest ^ word) * 0x9e3779b97f4a7c15, digest ^= digest >> 32;
            finite += stage[i] - stage[i] == 0;
        }
        read += PARTS * PIECE;
    }
    for (int l = 0; l < layers; l++) put_back(weight[l], 1, NULL);
    put_back(scratch, 1, NULL), put_back(input, 1, NULL);
    // Every other seed leaves its segments to the next one, as a long program does.
    if (seed % 2) give_back_segments();
    printf("%lu %016lx %lu\n", (unsigned long)seed, (unsigned long)digest, (unsigned long)(finite * 1000 / read));
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: steady FIRST COUNT\n"), 2;
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    OK(cudaMallocHost((void **)&stage, PARTS * PIECE * 4));
    for (uint64_t seed = first; seed < first + count; seed++) workload(seed);
    OK(cudaGetLastError());
    fflush(stdout);
    // What is to be asked about us before we end.
    const char *at_end = getenv("AT_END");
    return at_end ? system(at_end) != 0 : 0;
}
