// The words of docs/page.md: PyTorch's notices hold and release the UM blocks they overlap, a hand-out waits for the discard in
// flight, captures pin, memory that goes back to the driver is closed, and every launch is in its stream's slot while it may run.
#include "check.h"
#include "cuda.h"
#include <pthread.h>
typedef struct { int8_t kind, index; } device;
extern void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, device);
static void report(void *p, uint64_t at, int64_t size) {
    device gpu = {1, 0};
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((char *)p + at, size, 0, 0, gpu);
}
#define MIB (1ull << 20)
enum { OPEN = 1 << 13, PINNED = 1 << 14, DISCARDING = 1 << 15 };
static volatile uint64_t *word(void *p, int block) {
    return page() + PAGE_HAND_OUTS + (((uint64_t)p >> 21) + block) % 262144;
}
static uint64_t holders(void *p, int block) { return *word(p, block) & (OPEN - 1); }
static uint64_t tag(void *p, int block) { return ((((uint64_t)p >> 21) + block) / 262144 % 1024) << 16; }
static volatile int ended;
static void *engine(void *at) {
    volatile uint64_t *word = at;
    usleep(30000);
    ended = 1;
    __sync_fetch_and_and(word, ~(uint64_t)DISCARDING);
    return NULL;
}
// Does something to the block while the engine discards it, which must wait for the engine.
#define WAITS(p, block, what)                                                   \
    do {                                                                        \
        pthread_t thread;                                                       \
        volatile uint64_t *at_ = word(p, block);                                \
        ended = 0;                                                              \
        __sync_fetch_and_or(at_, (uint64_t)DISCARDING);                         \
        EQUAL(pthread_create(&thread, NULL, engine, (void *)at_), 0);           \
        what;                                                                   \
        EQUAL(ended, 1);                                                        \
        EQUAL(pthread_join(thread, NULL), 0);                                   \
    } while (0)
static void *last;
// The same while another thread turns us off.
static void *engine_while_turning_off(void *unused) {
    (void)unused;
    for (int i = 0; i < 30000 && !(*word(last, 1) & PINNED); i++) usleep(1000);
    CHECK(*word(last, 1) & PINNED);
    uint64_t before = counter(PT_NOTICES);
    report(last, 2 * MIB, 512);
    EQUAL(counter(PT_NOTICES), before + 1);
    ended = 2;
    __sync_fetch_and_and(word(last, 0), ~(uint64_t)DISCARDING);
    return NULL;
}
static int slots_busy(void) {
    int busy = 0;
    for (int i = 0; i < 512; i++) busy += (int)(page()[PAGE_ISSUED + i] >> 63);
    return busy;
}
static uint64_t newest(void) {
    uint64_t most = 0;
    for (int i = 0; i < 512; i++) {
        uint64_t seq = page()[PAGE_ISSUED + i] & ((1ull << 62) - 1);
        if (seq > most) most = seq;
    }
    return most;
}
int main(void) {
    void *p, *q, *own, *graph;
    EQUAL(cudaMalloc(&p, 8 * MIB), 0);
    CHECK(page() != NULL);
    // Nobody knows yet what is in it.
    for (int i = 0; i < 4; i++) EQUAL(*word(p, i), 0);
    report(p, 0, 3 * MIB);
    EQUAL(*word(p, 0), OPEN | tag(p, 0) | 1);
    EQUAL(*word(p, 1), OPEN | tag(p, 1) | 1);
    EQUAL(*word(p, 3), OPEN | tag(p, 3));
    report(p, 3 * MIB, 512);
    EQUAL(holders(p, 1), 2);
    report(p, 0, -3 * (int64_t)MIB);
    EQUAL(holders(p, 0), 0);
    EQUAL(holders(p, 1), 1);
    // A tensor that is taken back twice was there once; one that is handed out twice is there once; and it is as long as it was.
    report(p, 0, -3 * (int64_t)MIB);
    EQUAL(holders(p, 1), 1);
    report(p, 4 * MIB, 4 * MIB);
    report(p, 4 * MIB, 2 * MIB);
    EQUAL(holders(p, 2), 1);
    EQUAL(holders(p, 3), 0);
    report(p, 4 * MIB, -4 * (int64_t)MIB);
    EQUAL(holders(p, 2), 0);
    // Released in epoch 7, which that closes.
    page()[PAGE_EPOCH] = 7 << 1;
    report(p, 3 * MIB, -512);
    EQUAL(*word(p, 1), OPEN | tag(p, 1) | 7ull << 26);
    EQUAL(page()[PAGE_EPOCH], 7 << 1 | 1);
    WAITS(p, 2, report(p, 4 * MIB, 512));
    EQUAL(holders(p, 2), 1);
    report(p, 4 * MIB, -512);

    // What is handed out during a capture, and what a captured kernel names, is a graph's.
    report(p, 0, 4 * MIB);
    EQUAL(cudaStreamBeginCapture(NULL, 0), 0);
    report(p, 6 * MIB, 512);
    void *inside = (char *)p + 512;
    ARGS(args, inside);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(cudaStreamEndCapture(NULL, &graph), 0);
    report(p, 6 * MIB, -512);
    report(p, 0, -4 * (int64_t)MIB);
    for (int i = 0; i < 4; i++) EQUAL(*word(p, i) & (PINNED | (OPEN - 1)), i == 2 ? 0 : PINNED);
    // So is what a captured copy names.
    EQUAL(cudaStreamBeginCapture(NULL, 0), 0);
    EQUAL(cudaMemsetAsync((char *)p + 4 * MIB, 0, 512, NULL), 0);
    EQUAL(cudaStreamEndCapture(NULL, &graph), 0);
    EQUAL(*word(p, 2) & (PINNED | (OPEN - 1)), PINNED);
    // It is closed before it goes back.
    WAITS(p, 2, EQUAL(cudaFree(p), 0));
    for (int i = 0; i < 4; i++) EQUAL(*word(p, i), 0);

    // A free that was refused, memory that the program made managed itself, and small memory are never opened.
    EQUAL(cudaMalloc(&q, 2 * MIB), 0);
    fake_fail("cuMemFree_v2", 1);
    CHECK(cudaFree(q) != 0);
    report(q, 0, 512);
    EQUAL(*word(q, 0), 0);
    EQUAL(cudaMallocManaged(&own, 4 * MIB, 1), 0);
    report(own, 0, 512);
    EQUAL(*word(own, 0), 0);

    // A launch is in its stream's slot, asleep or awake; a refused one is not waited for.
    ARGS(plain, own);
    uint64_t before = newest();
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, plain, 0, NULL), 0);
    EQUAL(newest(), before + 1);
    fake_fail("cuLaunchKernel", 1);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, plain, 0, NULL), 1);
    EQUAL(newest(), before + 1);
    // So is a copy.
    EQUAL(cudaMemsetAsync(own, 0, 512, NULL), 0);
    EQUAL(newest(), before + 2);
    fake_fail("cudaMemsetAsync", 1);
    EQUAL(cudaMemsetAsync(own, 0, 512, NULL), 1);
    EQUAL(newest(), before + 2);
    EQUAL(slots_busy(), 0);
    // The first operation behind a release begins another epoch, and its slot tells where the last one ended.
    uint64_t epoch = page()[PAGE_EPOCH] >> 1;
    EQUAL(cudaMalloc(&q, 4 * MIB), 0);
    report(q, 0, 512);
    report(q, 0, -512);
    EQUAL(page()[PAGE_EPOCH], epoch << 1 | 1);
    for (uint64_t i = 1; i < 4; i++) {
        EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, plain, 0, NULL), 0);
        EQUAL(page()[PAGE_EPOCH] >> 1, epoch + 1);
        EQUAL(newest(), before + 2 + i);
        int slot = 0;
        while (page()[PAGE_ISSUED + slot] << 2 >> 2 != newest()) slot++;
        EQUAL(page()[PAGE_EPOCHS + slot], epoch + 1);
        EQUAL(page()[PAGE_ENDS + slot * 2048 + epoch % 2048], before + 2);
    }
    ring()[RING_MODE] = 1;
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, plain, 0, NULL), 0);
    EQUAL(*(volatile uint64_t *)fake_progress(1), newest());
    EQUAL(slots_busy(), 0);
    EQUAL(page()[PAGE_BLIND], 0);
    for (uint64_t i = 0; i < 600; i++) EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, plain, 0, (void *)(0x100000 + i * 64)), 0);
    EQUAL(page()[PAGE_BLIND], 1);

    // Once we are off, nobody says who holds what; until all of it is held, hooks work on.
    EQUAL(cudaMalloc(&last, 4 * MIB), 0);
    report(last, 0, 512);
    report(last, 0, -512);
    EQUAL(*word(last, 0) & (PINNED | OPEN | (OPEN - 1)), OPEN);
    pthread_t thread;
    __sync_fetch_and_or(word(last, 0), (uint64_t)DISCARDING);
    EQUAL(pthread_create(&thread, NULL, engine_while_turning_off, NULL), 0);
    EQUAL(cudaDeviceReset(), 0);
    EQUAL(ended, 2);
    EQUAL(pthread_join(thread, NULL), 0);
    volatile uint64_t *words = page() + PAGE_HAND_OUTS;
    for (int i = 0; i < 262144; i++) EQUAL(words[i], PINNED);
    uint64_t notices = counter(PT_NOTICES);
    report(last, 0, 512);
    EQUAL(counter(PT_NOTICES), notices);
    return 0;
}
