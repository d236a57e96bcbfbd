// Uses 700 streams at once, and again after half of them were destroyed. Hard: what we keep for a stream has an end, and beyond it must be correct, too.
#include "runtime.h"

enum { STREAMS = 700, N = 12 * 1024 };

int main(void) {
    static stream_t streams[STREAMS];
    float *at;
    OK(cudaMalloc((void **)&at, STREAMS * N * 4ul));
    for (int i = 0; i < STREAMS; i++) OK(cudaStreamCreateWithFlags(&streams[i], i % 2 ? NON_BLOCKING : 0));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < STREAMS; i++) fill(at + i * N, N, (float)(i + round), streams[i]);
        for (int i = 0; i < STREAMS; i++) scale(at + i * N, N, 0.5f, streams[i]);
        say("%016" PRIx64 "\n", on_device(at, STREAMS * N));
        for (int i = 0; i < STREAMS; i += 2) {
            OK(cudaStreamDestroy(streams[i]));
            OK(cudaStreamCreate(&streams[i]));
        }
    }
    for (int i = 0; i < STREAMS; i++) OK(cudaStreamDestroy(streams[i]));
    OK(cudaFree(at));
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
