// Managed memory of the program's own, with prefetches and advice of every kind, and what it is then said to be. Hard: its wishes are about pages that we
// move, too, and are its own to read back.
#include "runtime.h"

#if CUDA == 12
int cudaMemPrefetchAsync(void *, size_t, int, stream_t), cudaMemAdvise(void *, size_t, int, int);
static int prefetch(void *at, size_t n, place to) { return cudaMemPrefetchAsync(at, n, to.kind == 2 ? -1 : to.id, NULL); }
static int advise(void *at, size_t n, int what, place where) { return cudaMemAdvise(at, n, what, where.kind == 2 ? -1 : where.id); }
#else
int cudaMemPrefetchAsync(void *, size_t, place, unsigned, stream_t), cudaMemAdvise(void *, size_t, int, place);
static int prefetch(void *at, size_t n, place to) { return cudaMemPrefetchAsync(at, n, to, 0, NULL); }
static int advise(void *at, size_t n, int what, place where) { return cudaMemAdvise(at, n, what, where); }
#endif

int main(void) {
    const place gpu = {1, 0}, cpu = {2, 0};
    float *at[3];
    for (int i = 0; i < 3; i++) OK(cudaMallocManaged((void **)&at[i], 4 * MIB, ATTACH_GLOBAL));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            say("to the GPU %d\n", prefetch(at[i], 4 * MIB, gpu));
            fill(at[i], MIB, (float)(i + round), NULL);
            say("part of it away %d\n", prefetch(at[i], MIB, cpu));
        }
        for (int what = 1; what <= 6; what++) {
            int value = 99, advised = advise(at[what % 3], 2 * MIB, what, what == 3 ? cpu : gpu);
            say("advice %d: %d", what, advised);
            for (int attribute = 1; attribute <= 3; attribute++) {
                int asked = cudaMemRangeGetAttribute(&value, 4, attribute, at[what % 3], 2 * MIB);
                say(", %d %d", asked, value);
            }
            say("\n");
        }
        for (int i = 0; i < 3; i++) axpy(at[i], at[(i + 1) % 3], MIB, 0.5f, NULL);
        for (int i = 0; i < 3; i++) say("%016" PRIx64 "\n", on_device(at[i], MIB));
    }
    say("not managed %d\n", prefetch(&at, 4, gpu));
    say("too much %d\n", prefetch(at[0], (size_t)1 << 40, gpu));
    say("nowhere %d\n", prefetch(at[0], 4096, (place){1, 77}));
    say("no advice %d\n", advise(at[0], 4096, 55, gpu));
    cudaGetLastError();
    for (int i = 0; i < 3; i++) OK(cudaFree(at[i]));
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
