// Awake, a copy or memset of managed memory is one place in the sequence, whichever door it came by and however many lie below: a
// record for each managed range, a progress write, one call of the genuine function; a memset waits at the gate. Dormant it has its
// place alone; of other memory, captured or refused it is none of that. Built against the runtime of CUDA 13, and with -DCUDA=12 against that of CUDA 12.
#include "check.h"
#include "cuda.h"
#include "fake/copies.h"
#ifndef CUDA
#define CUDA 13
#endif
// Without parameters: each call below passes exactly what CUDA's own prototype says.
#define DRIVER(name, twin) int name(), name##twin();
#define RUNTIME DRIVER
DRIVER_COPIES RUNTIME_COPIES
int cudaMemcpyPeer(), cudaMemcpyPeerAsync();
#undef DRIVER
#undef RUNTIME

enum { READS = 6, WRITES = 7 };
typedef struct { unsigned kind; uint64_t at, len; } touch;
typedef uint64_t u64;

static struct { int calls, progress, waits; u64 head, copies, places, launches; } before;
static void begin(const char *name) {
    before.calls = fake_calls(name);
    before.progress = fake_calls("cuStreamWriteValue64_v2");
    before.waits = fake_calls("cuStreamWaitValue64_v2");
    before.head = ring()[8], before.copies = counter(COPIES), before.places = ring()[RING_ISSUED];
    before.launches = counter(LAUNCHES);
}
static void end(int line, const char *name, const touch *want, int n) {
    volatile u64 *r = ring();
    u64 at = before.head, seq = before.places + 1;
#define SAME(have, wanted)                                                                          \
    do {                                                                                            \
        u64 have_ = (u64)(have), want_ = (u64)(wanted);                                             \
        if (have_ != want_) {                                                                       \
            fprintf(stderr, "%s, line %d: %s is %#" PRIx64 ", not %#" PRIx64 "\n", name, line, #have, have_, want_); \
            _exit(1);                                                                               \
        }                                                                                           \
    } while (0)
    SAME(fake_calls(name), before.calls + 1);
    SAME(r[RING_ISSUED], before.places + (n > 0));
    SAME(counter(COPIES), before.copies + (n > 0));
    SAME(counter(LAUNCHES), before.launches);
    // The kernel of a memset would fault on what is not there, as any other; copy engines do not.
    SAME(fake_calls("cuStreamWaitValue64_v2"), before.waits + (n > 0 && strstr(name, "emset")));
    SAME(fake_calls("cuStreamWriteValue64_v2"), before.progress + (n > 0));
    SAME(r[8], at + 4 * n);
    if (n > 0) SAME(fake_progress(0), seq);
    for (int i = 0; i < n; i++, at += 4) {
        volatile u64 *record = r + 128;
#define WORD(j) record[(at + (j)) % r[2]]
        SAME(WORD(0) & 0xffffffff, want[i].kind | 4 << 8);
        SAME(WORD(1), seq);
        SAME(WORD(2), want[i].at);
        SAME(WORD(3), want[i].len);
    }
}
#define DOOR(name, args, ...)                               \
    do {                                                    \
        const touch want_[] = {__VA_ARGS__};                \
        begin(#name);                                       \
        EQUAL(name args, 0);                                \
        end(__LINE__, #name, want_, sizeof want_ / sizeof *want_); \
    } while (0)
// A function and its twin for per-thread default streams, whose default stream is another one.
#define TWINS(name, twin, args, ...)              \
    do {                                          \
        DOOR(name, args, __VA_ARGS__);            \
        u64 word_ = fake_progress(1);             \
        DOOR(name##twin, args, __VA_ARGS__);      \
        CHECK((fake_progress(1) == word_) == (stream != NULL)); \
    } while (0)
#define ARGS_(...) (__VA_ARGS__)
#define PLUS(...) (__VA_ARGS__, stream)
// The same without and with a stream.
#define FORMS(now, queued, args, ...)                    \
    do {                                                 \
        stream = NULL;                                   \
        TWINS(now, _ptds, ARGS_ args, __VA_ARGS__);      \
        TWINS(queued, _ptsz, PLUS args, __VA_ARGS__);    \
        stream = (void *)0x5000;                         \
        TWINS(queued, _ptsz, PLUS args, __VA_ARGS__);    \
    } while (0)
#define QUEUED(name, args, ...)                          \
    do {                                                 \
        stream = NULL;                                   \
        TWINS(name, _ptsz, PLUS args, __VA_ARGS__);      \
        stream = (void *)0x5000;                         \
        TWINS(name, _ptsz, PLUS args, __VA_ARGS__);      \
    } while (0)
#define N(n) ((size_t)(n))

int main(void) {
    enum { MIB = 1 << 20 };
    void *p, *q, *stream = NULL, *array = (void *)0xa000, *symbol = (void *)0xb000;
    static char host[4096];
    EQUAL(cudaMalloc(&p, 8 * MIB), 0);
    EQUAL(cudaMalloc(&q, 8 * MIB), 0);
    u64 a = (u64)p, b = (u64)q;
    size_t n = 3 * MIB;
#define R(at, len) {READS, at, len}
#define W(at, len) {WRITES, at, len}

    // Dormant: a place, so that who wakes knows what is in flight, and nothing else.
    u64 head = ring()[8];
    EQUAL(cudaMemcpyAsync(p, q, n, 3, NULL), 0);
    EQUAL(cudaMemcpyAsync(host, host + 64, N(64), 0, NULL), 0);
    EQUAL(counter(COPIES), 1);
    EQUAL(ring()[RING_ISSUED], 1);
    EQUAL(ring()[8], head);
    EQUAL(fake_calls("cuStreamWriteValue64_v2"), 0);
    ring()[RING_MODE] = 1;

    // The runtime.
    FORMS(cudaMemcpy, cudaMemcpyAsync, (p, q, n, 3), R(b, n), W(a, n));
    FORMS(cudaMemcpy, cudaMemcpyAsync, (p, host, N(4096), 1), W(a, 4096));
    FORMS(cudaMemcpy, cudaMemcpyAsync, (host, (char *)q + 5, N(4096), 2), R(b + 5, 4096));
    FORMS(cudaMemcpy2D, cudaMemcpy2DAsync, (p, N(8192), host, N(64), N(64), N(10), 1), W(a, 9 * 8192 + 64));
    runtime_copy boxes = {{NULL, {1, 2, 3}, {p, 256, 200, 10}}, {NULL, {0, 0, 0}, {q, 512, 200, 20}}, {100, 4, 5}, 3};
    FORMS(cudaMemcpy3D, cudaMemcpy3DAsync, (&boxes), R(a + 1 + 2 * 256 + 3 * 2560, 4 * 2560 + 3 * 256 + 100), W(b, 4 * 10240 + 3 * 512 + 100));
    runtime_copy to_array = {{NULL, {0, 1, 0}, {p, 256, 200, 10}}, {array, {0, 0, 0}, {NULL, 0, 0, 0}}, {9, 4, 1}, 3};
    FORMS(cudaMemcpy3D, cudaMemcpy3DAsync, (&to_array), R(a + 256, 4 * 256));
    runtime_peer_copy peers = {boxes.src, 0, boxes.dst, 0, boxes.extent};
    FORMS(cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, (&peers), R(a + 1 + 2 * 256 + 3 * 2560, 4 * 2560 + 3 * 256 + 100), W(b, 4 * 10240 + 3 * 512 + 100));
    DOOR(cudaMemcpyPeer, (p, 0, q, 0, n), R(b, n), W(a, n));
    DOOR(cudaMemcpyPeerAsync, (p, 0, q, 0, n, (void *)0x5000), R(b, n), W(a, n));
    FORMS(cudaMemcpyToSymbol, cudaMemcpyToSymbolAsync, (symbol, p, N(64), N(0), 3), R(a, 64));
    FORMS(cudaMemcpyFromSymbol, cudaMemcpyFromSymbolAsync, (p, symbol, N(64), N(0), 3), W(a, 64));
    FORMS(cudaMemcpyToArray, cudaMemcpyToArrayAsync, (array, N(0), N(0), p, N(64), 3), R(a, 64));
    FORMS(cudaMemcpyFromArray, cudaMemcpyFromArrayAsync, (p, array, N(0), N(0), N(64), 3), W(a, 64));
    FORMS(cudaMemcpy2DToArray, cudaMemcpy2DToArrayAsync, (array, N(0), N(0), p, N(512), N(64), N(3), 3), R(a, 2 * 512 + 64));
    FORMS(cudaMemcpy2DFromArray, cudaMemcpy2DFromArrayAsync, (p, N(512), array, N(0), N(0), N(64), N(3), 3), W(a, 2 * 512 + 64));
    FORMS(cudaMemset, cudaMemsetAsync, (p, 0, n), W(a, n));
    FORMS(cudaMemset2D, cudaMemset2DAsync, (p, N(512), 0, N(100), N(3)), W(a, 2 * 512 + 100));
    pitched pitch = {p, 512, 100, 7};
    extent3 extent = {100, 3, 2};
    FORMS(cudaMemset3D, cudaMemset3DAsync, (pitch, 0, extent), W(a, 7 * 512 + 2 * 512 + 100));
    // Lists: one place for all of them. CUDA 12 has an argument more.
    void *dsts[] = {p, host, (char *)p + 4096}, *srcs[] = {q, q, host};
    size_t sizes[] = {64, 65, 66}, failed;
    box_copy list[] = {{{1, p, 32, 4, 0}, {1, host, 0, 0, 0}, {16, 4, 2}, 1, 0}, {{2, array, 0, 0, 0}, {1, q, 32, 4, 0}, {16, 4, 1}, 1, 0}};
#define BATCH R(b, 64), W(a, 64), R(b, 65), W(a + 4096, 66)
#define BOXES R(a, 32 * 7 + 16), W(b, 16 * (32 * 3 + 16))
    (void)failed;
#if CUDA == 12
    QUEUED(cudaMemcpyBatchAsync, (dsts, srcs, sizes, N(3), NULL, NULL, N(0), &failed), BATCH);
    QUEUED(cudaMemcpy3DBatchAsync, (N(2), list, &failed, 0ull), BOXES);
#else
    QUEUED(cudaMemcpyBatchAsync, (dsts, srcs, sizes, N(3), NULL, NULL, N(0)), BATCH);
    QUEUED(cudaMemcpy3DBatchAsync, (N(2), list, 0ull), BOXES);
    QUEUED(cudaMemcpyWithAttributesAsync, (p, q, n, NULL), R(b, n), W(a, n));
    QUEUED(cudaMemcpy3DWithAttributesAsync, (list, 0ull), R(a, 32 * 7 + 16));
#endif

    // The driver.
    FORMS(cuMemcpy, cuMemcpyAsync, (a, b, n), R(b, n), W(a, n));
    FORMS(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, (a, host, N(64)), W(a, 64));
    FORMS(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, (host, b, N(64)), R(b, 64));
    FORMS(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, (a, b, n), R(b, n), W(a, n));
    FORMS(cuMemcpyPeer, cuMemcpyPeerAsync, (a, NULL, b, NULL, n), R(b, n), W(a, n));
    stream = NULL;
    TWINS(cuMemcpyDtoA_v2, _ptds, (array, N(0), b, N(64)), R(b, 64));
    TWINS(cuMemcpyAtoD_v2, _ptds, (a, array, N(0), N(64)), W(a, 64));
    FORMS(cuMemcpyHtoA_v2, cuMemcpyHtoAAsync_v2, (array, N(0), q, N(64)), R(b, 64));
    FORMS(cuMemcpyAtoH_v2, cuMemcpyAtoHAsync_v2, (p, array, N(0), N(64)), W(a, 64));
    copy_2d rows = {{8, 1, 2, host, p, array, 256}, {0, 0, 1, q, host, array, 128}, 64, 5};
    FORMS(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, (&rows), R(a + 8 + 256, 4 * 256 + 64), W(b, 4 * 128 + 64));
    stream = NULL;
    TWINS(cuMemcpy2DUnaligned_v2, _ptds, (&rows), R(a + 8 + 256, 4 * 256 + 64), W(b, 4 * 128 + 64));
    copy_3d cube = {{0, 0, 1, 0, 4, host, p, array, NULL, 256, 10}, {0, 0, 0, 0, 3, q, q, array, NULL, 128, 5}, 64, 5, 2};
    FORMS(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, (&cube), R(a + 2560, 2560 + 4 * 256 + 64));
    FORMS(cuMemcpy3DPeer, cuMemcpy3DPeerAsync, (&cube), R(a + 2560, 2560 + 4 * 256 + 64));
    QUEUED(cuMemcpyBatchAsync, (dsts, srcs, sizes, N(3), NULL, NULL, N(0), &failed), BATCH);
    QUEUED(cuMemcpyBatchAsync_v2, (dsts, srcs, sizes, N(3), NULL, NULL, N(0)), BATCH);
    QUEUED(cuMemcpy3DBatchAsync, (N(2), list, &failed, 0ull), BOXES);
    QUEUED(cuMemcpy3DBatchAsync_v2, (N(2), list, 0ull), BOXES);
    QUEUED(cuMemcpyWithAttributesAsync, (a, b, n, NULL), R(b, n), W(a, n));
    QUEUED(cuMemcpy3DWithAttributesAsync, (list, 0ull), R(a, 32 * 7 + 16));
    FORMS(cuMemsetD8_v2, cuMemsetD8Async, (a, 0, N(10)), W(a, 10));
    FORMS(cuMemsetD16_v2, cuMemsetD16Async, (a, 0, N(10)), W(a, 20));
    FORMS(cuMemsetD32_v2, cuMemsetD32Async, (a, 0, N(10)), W(a, 40));
    FORMS(cuMemsetD2D8_v2, cuMemsetD2D8Async, (a, N(64), 0, N(10), N(3)), W(a, 138));
    FORMS(cuMemsetD2D16_v2, cuMemsetD2D16Async, (a, N(64), 0, N(10), N(3)), W(a, 148));
    FORMS(cuMemsetD2D32_v2, cuMemsetD2D32Async, (a, N(64), 0, N(10), N(3)), W(a, 168));

    // A copy that runs past its allocation is recorded no further; one of other memory, or of nothing, not at all.
    void *large;
    EQUAL(cudaMalloc(&large, 32 * MIB), 0);
    u64 c = (u64)large;
    DOOR(cuMemcpyAsync, ((u64)host, c + 31 * MIB, N(9) << 20, NULL), R(c + 31 * MIB, MIB));
    // Of one that is no whole chunk the driver knows another end than the program, so it is not asked.
    begin("cuMemcpyAsync");
    EQUAL(cuMemcpyAsync((u64)host, a + 7 * MIB, N(9) << 20, NULL), 1);
    EQUAL(cudaMemcpyAsync(host, p, N(8 * MIB + 1), 2, NULL), 1);
    EQUAL(cudaMemsetAsync(p, 0, N(8 * MIB + 1), NULL), 1);
    EQUAL(fake_calls("cuMemcpyAsync"), before.calls);
    EQUAL(ring()[RING_ISSUED], before.places);
    EQUAL(counter(COPIES), before.copies);
#define NONE(name, args)                      \
    do {                                      \
        begin(#name);                         \
        EQUAL(name args, 0);                  \
        end(__LINE__, #name, NULL, 0);        \
    } while (0)
    NONE(cudaMemcpyAsync, (host, host + 64, N(64), 0, NULL));
    NONE(cudaMemcpyAsync, (p, q, N(0), 3, NULL));
    NONE(cudaMemset2DAsync, (p, N(512), 0, N(0), N(3), NULL));
    void *unseen;
    EQUAL(cudaMalloc(&unseen, 4096), 0);
    NONE(cudaMemsetAsync, (unseen, 0, N(4096), NULL));
    // What enters a graph does not run.
    void *graph;
    EQUAL(cudaStreamBeginCapture(NULL, 0), 0);
    NONE(cudaMemcpyAsync, (p, q, n, 3, NULL));
    NONE(cudaMemsetAsync_ptsz, (p, 0, n, NULL));
    EQUAL(cudaStreamEndCapture(NULL, &graph), 0);

    // A refused copy gives its place back, whichever door says so; a refused list may have begun.
    u64 places = ring()[RING_ISSUED], copies = counter(COPIES), writes = counter(PROGRESS_WRITES);
    fake_fail("cudaMemcpyAsync", 1);
    EQUAL(cudaMemcpyAsync(p, q, n, 3, NULL), 1);
    fake_fail("cuMemcpyAsync", 700);
    EQUAL(cudaMemcpyAsync(p, q, n, 3, NULL), 700);
    EQUAL(ring()[RING_ISSUED], places);
    EQUAL(counter(COPIES), copies);
    fake_fail("cuMemcpyBatchAsync_v2", 1);
    EQUAL(cuMemcpyBatchAsync_v2(dsts, srcs, sizes, N(3), NULL, NULL, N(0), (void *)0x5000), 1);
    EQUAL(ring()[RING_ISSUED], places + 1);
    EQUAL(counter(PROGRESS_WRITES), writes + 1);
    EQUAL(counter(COPIES), copies + 1);
    // So the copies' own share of the places: all but those of launches, of which there were none.
    EQUAL(ring()[RING_COPIES], ring()[RING_ISSUED]);
    // A launch behind a copy has the next place.
    ARGS(args, p);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(ring()[RING_ISSUED], places + 2);
    EQUAL(fake_progress(0), places + 2);
    return 0;
}
