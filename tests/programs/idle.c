// Streams that were used while the engine slept and are never used again: awake, the driver is asked about them until they are idle,
// and their progress words say so. Destroyed ones say it themselves, and nobody is asked about them, nor anybody during a capture.
#include "check.h"
#include "cuda.h"
#include <pthread.h>
static void *memory;
static void *launch(void *stream) {
    ARGS(args, memory);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, stream), 0);
    return NULL;
}
static void in_a_thread(void *stream) {
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, launch, stream), 0);
    EQUAL(pthread_join(thread, NULL), 0);
}
static void awake(int yes) { ring()[RING_MODE] = (uint64_t)yes; }
// Slots in use, and those of them whose progress word is behind.
static int slots(int only_behind) {
    int count = 0;
    for (int i = 0; i < 512; i++) {
        uint64_t seq = page()[PAGE_ISSUED + i] & ((1ull << 62) - 1);
        int used = (int)(page()[PAGE_USED + i / 64] >> (i % 64) & 1);
        count += used && (!only_behind || page()[i] < seq);
    }
    return count;
}
static int asked(void) { return fake_calls("cuStreamQuery"); }
static int written(void) { return fake_calls("cuStreamWriteValue64_v2"); }
#define A ((void *)0x5000)
#define B ((void *)0x6000)
#define C ((void *)0x7000)
#define D ((void *)0x8000)
#define PER_THREAD ((void *)2)
int main(void) {
    EQUAL(cudaMalloc(&memory, 4 << 20), 0);
    void *graph;
    launch(A), launch(B), launch(C);
    EQUAL(slots(1), 3);
    EQUAL(written(), 0);
    // Its last words, through both doors once.
    EQUAL(cudaStreamDestroy(B), 0);
    EQUAL(written(), 1);
    EQUAL(fake_progress(0), 2);
    EQUAL(slots(1), 2);
    // Nobody asks during a capture, also where another stream's launch goes on.
    awake(1);
    EQUAL(cudaStreamBeginCapture(NULL, 0), 0);
    launch(D);
    EQUAL(cudaStreamEndCapture(NULL, &graph), 0);
    EQUAL(asked(), 0);
    // A capture that does not begin leaves nothing behind.
    fake_fail("cuStreamBeginCapture_v2", 1);
    EQUAL(cudaStreamBeginCapture(NULL, 0), 1);
    // One of the two is busy yet, and asked again later.
    fake_fail("cuStreamQuery", 600);
    launch(D);
    EQUAL(asked(), 2);
    EQUAL(slots(1), 1);
    for (int i = 0; i < 300; i++) launch(D);
    EQUAL(asked(), 3);
    EQUAL(slots(1), 0);
    // A handle that is given out again is another stream's.
    fake_create(B);
    awake(0), launch(B), awake(1);
    EQUAL(slots(1), 1);
    for (int i = 0; i < 100; i++) launch(D);
    EQUAL(asked(), 4);
    EQUAL(slots(1), 0);
    // Who cannot be asked is not asked twice.
    awake(0), launch(A), awake(1);
    fake_fail("cuStreamQuery", 400);
    for (int i = 0; i < 300; i++) launch(D);
    EQUAL(asked(), 5);
    EQUAL(slots(1), 1);
    awake(0), launch(A), launch(B), launch(C), awake(1);
    EQUAL(cuCtxDestroy_v2(NULL), 0);
    for (int i = 0; i < 100; i++) launch(D);
    EQUAL(asked(), 5);
    EQUAL(slots(1), 3);
    launch(A), launch(B), launch(C);
    EQUAL(slots(1), 0);

    // Threads have slots of their own, which go on to other threads when they end.
    EQUAL(slots(0), 4);
    awake(0), in_a_thread(D), awake(1);
    EQUAL(slots(0), 5);
    EQUAL(slots(1), 1);
    for (int i = 0; i < 100; i++) launch(A);
    EQUAL(slots(1), 0);
    int same = 0;
    for (int i = 0; i < 512; i++)
        for (int j = 0; j < i; j++) same += page()[PAGE_STREAMS + i] && page()[PAGE_STREAMS + i] == page()[PAGE_STREAMS + j];
    EQUAL(same, 1);
    for (int i = 0; i < 600; i++) in_a_thread(D);
    EQUAL(slots(0), 5);
    EQUAL(slots(1), 0);

    // A thread's own default stream: that thread asks, and no other.
    int before = asked();
    awake(0), launch(PER_THREAD), awake(1);
    EQUAL(slots(1), 1);
    for (int i = 0; i < 100; i++) in_a_thread(D);
    EQUAL(asked(), before);
    for (int i = 0; i < 100; i++) launch(D);
    EQUAL(asked(), before + 1);
    EQUAL(slots(1), 0);
    EQUAL(page()[PAGE_BLIND], 0);
    return 0;
}
