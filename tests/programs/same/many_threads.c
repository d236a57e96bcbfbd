// 400 threads, one after the other, each of which launches, and none of which says goodbye. Hard: what we keep for a thread must be given back.
#include "runtime.h"

static float *at;

static void *run(void *number) {
    float value = (float)(intptr_t)number;
    size_t from = (size_t)(intptr_t)number % 3 * MIB;
    axpy(at + from, at + (from + MIB) % (3 * MIB), MIB / 8, value / 400, NULL);
    return NULL;
}

int main(void) {
    OK(cudaMalloc((void **)&at, 12 * MIB));
    fill(at, 3 * MIB, 1, NULL);
    for (intptr_t i = 0; i < 400; i++) {
        pthread_t thread;
        NEED(pthread_create(&thread, NULL, run, (void *)i) == 0);
        pthread_join(thread, NULL);
    }
    say("%016" PRIx64 "\n", on_device(at, 3 * MIB));
    OK(cudaFree(at));
    return 0;
}
