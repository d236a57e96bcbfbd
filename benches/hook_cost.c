// Nanoseconds per launch as the program sees it: hook_cost [dormant|awake] [LAUNCHES] [launch|copy|elsewhere|tensor|tensors]. Without the preload it
// measures the call alone. `copy` is a copy from managed memory to managed memory in place of a launch, `elsewhere` one of host memory;
// `tensor` a notice of PyTorch's allocator, of 1 MiB that is handed out and taken back again and again, `tensors` among 5,000 others.
// Awake, the launches are recorded and progress is written; the ring is emptied between the batches, where no engine does it.
#define _GNU_SOURCE
#include "../tests/programs/check.h"
#include <time.h>

int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemcpyAsync(uint64_t, uint64_t, size_t, void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

enum { BATCH = 100, MOST = 1 << 20 };
static double sample[MOST / BATCH];
static uint64_t v[5];
static int n = 7, m = 9;
static float x = 1;

typedef struct { int8_t kind, index; } device;
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, device);
static void report(uint64_t at, int64_t size) {
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)at, size, 0, 0, (device){1, 0});
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static enum { LAUNCH, COPY, NOTICE } what;
static uint64_t from, to;
__attribute__((noinline)) void measured(void) {
    if (what == NOTICE) {
        for (int i = 0; i < BATCH; i++) report(v[4], i % 2 ? -(1 << 20) : 1 << 20);
        return;
    }
    if (what == COPY) {
        for (int i = 0; i < BATCH; i++) cuMemcpyAsync(to, from, 4096, (void *)0x5000);
        return;
    }
    void *args[] = {&v[0], &v[1], &v[2], &v[3], &v[4], &n, &m, &x};
    for (int i = 0; i < BATCH; i++) cuLaunchKernel((void *)0x51, 64, 1, 1, 256, 1, 1, 0, (void *)0x5000, args, NULL);
}
static void drain(volatile uint64_t *r) {
    uint64_t capacity = r[2];
    while (r[128 + r[16] % capacity]) {
        uint64_t at = r[16], len = r[128 + at % capacity] >> 8 & 0xffff;
        for (uint64_t i = 0; i < len; i++) r[128 + (at + i) % capacity] = 0;
        r[16] = at + len;
    }
}
static int order(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}
int main(int argc, char **argv) {
    uint64_t p;
    int launches = argc > 2 ? atoi(argv[2]) : 200000, batches = launches / BATCH;
    CHECK(launches <= MOST && batches > 0);
    EQUAL(cuMemAlloc_v2(&p, 64 << 20), 0);
    for (int i = 0; i < 5; i++) v[i] = p + ((uint64_t)i << 23) + 512;
    const char *of = argc > 3 ? argv[3] : "launch";
    what = !strcmp(of, "launch") ? LAUNCH : !strncmp(of, "tensor", 6) ? NOTICE : COPY;
    from = what == COPY && !strcmp(of, "copy") ? v[0] : 0x1000, to = from == v[0] ? v[1] : 0x2000;
    volatile uint64_t *r = ring();
    int awake = argc > 1 && !strcmp(argv[1], "awake");
    if (!strcmp(of, "tensors"))
        for (int i = 0; i < 5000; i++) report(p + 4096 * (uint64_t)i, 4096);
    if (r) drain(r);
    if (awake) CHECK(r != NULL);
    // The first tenth warms up and is not a result.
    for (int i = -batches / 10; i < batches; i++) {
        if (r) r[RING_MODE] = awake;
        double start = now();
        measured();
        if (i >= 0) sample[i] = (now() - start) / BATCH;
        // There is no driver to move pages with, so the engine is off, and nobody else reads.
        if (awake || (r && what == NOTICE)) drain(r);
    }
    uint64_t all = (uint64_t)(batches + batches / 10) * BATCH;
    if (r) EQUAL(r[RING_COUNTERS + LAUNCHES], what == LAUNCH ? all : 0);
    if (r) EQUAL(r[RING_COUNTERS + COPIES], what == COPY && from == v[0] ? all : 0);
    if (r && what == NOTICE) CHECK(r[RING_COUNTERS + PT_NOTICES] >= all);
    if (awake || (r && what == NOTICE)) EQUAL(r[RING_DROPPED], 0);
    qsort(sample, batches, sizeof *sample, order);
    printf("%.1f %.1f\n", sample[batches / 2], sample[batches * 99 / 100]);
    return 0;
}
