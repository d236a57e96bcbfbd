// Each copy and memset that the emulated device has is one place in the sequence, and what the program itself says about places is
// none: `copies_emu DEEPUM STATUS`, on a device that cannot hold its 64 MiB; -DCUDA=12 is against the runtime of CUDA 12. Prints how
// many places it took, and how many of them before the engine woke, after having the executable DEEPUM write the status of this process
// into the file STATUS.
#include "check.h"

#define DRIVER                                                                                                        \
    X(cuMemcpy, _ptds) X(cuMemcpyAsync, _ptsz) X(cuMemcpyHtoD_v2, _ptds) X(cuMemcpyHtoDAsync_v2, _ptsz) X(cuMemcpyDtoH_v2, _ptds) \
    X(cuMemcpyDtoHAsync_v2, _ptsz) X(cuMemcpyDtoD_v2, _ptds) X(cuMemcpyDtoDAsync_v2, _ptsz) X(cuMemcpy2D_v2, _ptds)   \
    X(cuMemcpy2DUnaligned_v2, _ptds) X(cuMemcpy2DAsync_v2, _ptsz) X(cuMemcpy3D_v2, _ptds) X(cuMemcpy3DAsync_v2, _ptsz) \
    X(cuMemsetD8_v2, _ptds) X(cuMemsetD8Async, _ptsz) X(cuMemsetD16_v2, _ptds) X(cuMemsetD16Async, _ptsz)             \
    X(cuMemsetD32_v2, _ptds) X(cuMemsetD32Async, _ptsz) X(cuMemsetD2D8_v2, _ptds) X(cuMemsetD2D8Async, _ptsz)         \
    X(cuMemsetD2D32_v2, _ptds) X(cuMemsetD2D32Async, _ptsz)
#define RUNTIME                                                                                                       \
    X(cudaMemcpy, _ptds) X(cudaMemcpyAsync, _ptsz) X(cudaMemcpy2DAsync, _ptsz) X(cudaMemset, _ptds) X(cudaMemsetAsync, _ptsz) \
    X(cudaMemset2DAsync, _ptsz)
// Without parameters: each call below passes exactly what CUDA's own prototype says.
#define X(name, twin) int name(), name##twin();
DRIVER RUNTIME
#undef X
int cudaMemcpy2D(), cudaMemset2D(), cudaMemcpyPeer(), cudaMemcpyPeerAsync();
int cudaMalloc(void **, size_t), cudaMallocManaged(void **, size_t, unsigned), cudaMallocHost(void **, size_t), cudaDeviceSynchronize(void);
int cudaStreamCreateWithFlags(void **, unsigned), cuStreamWriteValue32_v2(void *, void *, uint32_t, unsigned);

typedef struct { size_t x, y; unsigned kind; void *host, *device, *array; size_t pitch; } end_2d;
typedef struct { end_2d src, dst; size_t width, height; } copy_2d;
typedef struct { size_t x, y, z, lod; unsigned kind; void *host, *device, *array, *context; size_t pitch, height; } end_3d;
typedef struct { end_3d src, dst; size_t width, height, depth; } copy_3d;

#ifndef CUDA
#define CUDA 13
#endif
// One name, two signatures: CUDA 12 takes a device number, -1 for the host; CUDA 13 a kind of place (1 a GPU, 2 the host) and its number.
typedef struct { int kind, id; } place;
#if CUDA == 12
int cudaMemPrefetchAsync(void *, size_t, int, void *), cudaMemAdvise(void *, size_t, int, int);
static int prefetch(void *at, size_t n, place to) { return cudaMemPrefetchAsync(at, n, to.kind == 2 ? -1 : to.id, NULL); }
static int advise(void *at, size_t n, int what, place where) { return cudaMemAdvise(at, n, what, where.kind == 2 ? -1 : where.id); }
#else
int cudaMemPrefetchAsync(void *, size_t, place, unsigned, void *), cudaMemAdvise(void *, size_t, int, place);
static int prefetch(void *at, size_t n, place to) { return cudaMemPrefetchAsync(at, n, to, 0, NULL); }
static int advise(void *at, size_t n, int what, place where) { return cudaMemAdvise(at, n, what, where); }
#endif

static uint64_t taken;
// One call, and what it is to add to the places.
#define DOOR(call, places)                                           \
    do {                                                             \
        uint64_t issued_ = ring()[RING_ISSUED];                      \
        EQUAL(call, 0);                                              \
        EQUAL(cudaDeviceSynchronize(), 0);                           \
        taken += (places);                                           \
        EQUAL(counter(COPIES), taken);                               \
        EQUAL(ring()[RING_ISSUED], issued_ + (places));              \
    } while (0)
#define ARGS_(...) (__VA_ARGS__)
#define PLUS(...) (__VA_ARGS__, stream)
#define FORMS(now, queued, args)                     \
    do {                                             \
        stream = NULL;                               \
        DOOR(now args, 1);                           \
        DOOR(now##_ptds args, 1);                    \
        DOOR(queued PLUS args, 1);                   \
        DOOR(queued##_ptsz PLUS args, 1);            \
        stream = own;                                \
        DOOR(queued PLUS args, 1);                   \
        DOOR(queued##_ptsz PLUS args, 1);            \
    } while (0)
#define N(n) ((size_t)(n))

int main(int argc, char **argv) {
    CHECK(argc == 3);
    size_t half = 32 << 20, n = 3 << 20;
    void *p, *q, *host, *own, *stream;
    EQUAL(cudaMalloc(&p, half), 0);
    EQUAL(cudaMalloc(&q, half), 0);
    EQUAL(cudaMallocHost(&host, n), 0);
    EQUAL(cudaStreamCreateWithFlags(&own, 1), 0);
    // The engine wakes when it has looked: at a notice of the driver's, or, where there is none, at a word that the GPU writes.
    for (int i = 0; i < 100 && ring()[RING_MODE] != 1; i++) {
        DOOR(cudaMemset(p, 0, n), 1);
        DOOR(cuStreamWriteValue32_v2(NULL, host, 1, 0), 0);
    }
    EQUAL(ring()[RING_MODE], 1);
    // Nothing was told until then.
    uint64_t untold = taken;
    EQUAL(untold, 1);

    FORMS(cudaMemcpy, cudaMemcpyAsync, (p, q, n, 3));
    FORMS(cudaMemcpy, cudaMemcpyAsync, (p, host, n, 1));
    FORMS(cudaMemcpy, cudaMemcpyAsync, (host, q, n, 2));
    FORMS(cudaMemcpy, cudaMemcpyAsync, (host, q, n, 4));
    FORMS(cudaMemset, cudaMemsetAsync, (p, 0, n));
    stream = own;
    DOOR(cudaMemcpy2D(p, N(8192), host, N(64), N(64), N(10), 1), 1);
    DOOR(cudaMemcpy2DAsync(p, N(8192), host, N(64), N(64), N(10), 1, stream), 1);
    DOOR(cudaMemcpy2DAsync_ptsz(p, N(8192), host, N(64), N(64), N(10), 1, NULL), 1);
    DOOR(cudaMemset2D(p, N(512), 0, N(100), N(3)), 1);
    DOOR(cudaMemset2DAsync(p, N(512), 0, N(100), N(3), stream), 1);
    DOOR(cudaMemset2DAsync_ptsz(p, N(512), 0, N(100), N(3), NULL), 1);
    DOOR(cudaMemcpyPeer(p, 0, q, 0, n), 1);
    DOOR(cudaMemcpyPeerAsync(p, 0, q, 0, n, stream), 1);
    FORMS(cuMemcpy, cuMemcpyAsync, (p, q, n));
    FORMS(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, (p, host, n));
    FORMS(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, (host, q, n));
    FORMS(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, (p, q, n));
    copy_2d rows = {{8, 1, 2, host, p, NULL, 256}, {0, 0, 2, host, q, NULL, 128}, 64, 5};
    FORMS(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, (&rows));
    DOOR(cuMemcpy2DUnaligned_v2(&rows), 1);
    DOOR(cuMemcpy2DUnaligned_v2_ptds(&rows), 1);
    copy_3d cube = {{0, 0, 1, 0, 2, host, p, NULL, NULL, 256, 10}, {0, 0, 0, 0, 1, host, q, NULL, NULL, 128, 5}, 64, 5, 2};
    FORMS(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, (&cube));
    FORMS(cuMemsetD8_v2, cuMemsetD8Async, (p, 0, n));
    FORMS(cuMemsetD16_v2, cuMemsetD16Async, (p, 0, n));
    FORMS(cuMemsetD32_v2, cuMemsetD32Async, (p, 0, n));
    FORMS(cuMemsetD2D8_v2, cuMemsetD2D8Async, (p, N(64), 0, N(10), N(3)));
    FORMS(cuMemsetD2D32_v2, cuMemsetD2D32Async, (p, N(64), 0, N(10), N(3)));

    // What the program says itself about where managed memory is to be, is no copy, is done, and leaves its bytes.
    const place gpu = {1, 0}, cpu = {2, 0};
    enum { READ_MOSTLY = 1, PREFERRED = 3, ACCESSED_BY = 5, SOME = 1 << 16 };
    void *own_managed;
    EQUAL(cudaMallocManaged(&own_managed, 4 << 20, 1), 0);
    for (int i = 0; i < 2; i++) {
        unsigned char *at = i ? own_managed : p;
        DOOR(cudaMemset(at, 0x5a + i, N(SOME)), 1);
        DOOR(prefetch(at, 4 << 20, cpu), 0);
        DOOR(prefetch(at, 4 << 20, gpu), 0);
        for (int what = READ_MOSTLY; what <= ACCESSED_BY + 1; what++) DOOR(advise(at, 4 << 20, what, what < PREFERRED ? gpu : cpu), 0);
        DOOR(prefetch(at, 4 << 20, cpu), 0);
        memset(host, 0, SOME);
        DOOR(cudaMemcpy(host, at, N(SOME), 2), 1);
        for (int j = 0; j < SOME; j++) EQUAL(((unsigned char *)host)[j], 0x5a + i);
    }

    // Of host memory alone: none.
    DOOR(cudaMemcpyAsync(host, (char *)host + 4096, N(4096), 0, own), 0);
    EQUAL(ring()[RING_COPIES], taken);
    EQUAL(counter(LAUNCHES), 0);

    char command[1024];
    snprintf(command, sizeof command, "LD_PRELOAD= LD_LIBRARY_PATH= '%s' status --json %d > '%s'", argv[1], (int)getpid(), argv[2]);
    EQUAL(system(command), 0);
    printf("%" PRIu64 " %" PRIu64 "\n", taken, untold);
    return 0;
}
