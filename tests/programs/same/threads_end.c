// Threads allocate, launch and end, with keys whose destructors call CUDA. Hard: what we keep for a thread is gone before such a destructor runs, or
// comes back by it.
#include "runtime.h"

enum { THREADS = 4 };
static pthread_key_t key;
static uint64_t found[THREADS];
static _Atomic int answered;

static void at_end(void *at) {
    int set = cudaMemset(at, 9, 4 * MIB), freed = cudaFree(at);
    answered += set * 1000 + freed;
}

static void *run(void *number) {
    int me = (int)(intptr_t)number;
    void *at;
    stream_t own;
    OK(cudaStreamCreateWithFlags(&own, NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        OK(cudaMalloc(&at, 4 * MIB));
        fill(at, MIB, (float)(me * 10 + i), own);
        scale(at, MIB, 0.5f, own);
        OK(cudaStreamSynchronize(own));
        found[me] = found[me] * 31 + on_device(at, MIB);
        OK(cudaFree(at));
    }
    OK(cudaStreamDestroy(own));
    OK(cudaMalloc(&at, 4 * MIB));
    pthread_setspecific(key, at);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    NEED(pthread_key_create(&key, at_end) == 0);
    for (intptr_t i = 0; i < THREADS; i++) NEED(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) say("%d %016" PRIx64 "\n", i, found[i]);
    say("answered at the end %d\n", answered);
    say("after %016" PRIx64 "\n", train(1));
    return 0;
}
