// Stream-ordered memory by every door, against the emulated device: `pools fit`, on a device that holds it, prints what the pools say of
// themselves; `pools big`, on one that holds 64 MiB, is out of memory without the shim. Exits 3 where memory ran out.
#include "check.h"

int cudaMallocAsync(void **, size_t, void *), cudaMallocAsync_ptsz(void **, size_t, void *), cudaFreeAsync(void *, void *), cudaFreeAsync_ptsz(void *, void *);
int cudaMallocFromPoolAsync(void **, size_t, void *, void *), cudaFree(void *), cudaMalloc(void **, size_t);
int cudaMemPoolGetAttribute(void *, int, void *), cudaMemPoolSetAttribute(void *, int, void *), cudaMemPoolTrimTo(void *, size_t);
int cudaDeviceGetDefaultMemPool(void **, int), cudaDeviceSynchronize(void), cudaGetLastError(void), cudaMemset(void *, int, size_t);
int cudaMemsetAsync(void *, int, size_t, void *), cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaStreamCreateWithFlags(void **, unsigned), cudaStreamDestroy(void *), cudaStreamSynchronize(void *), cudaStreamQuery(void *), cudaDeviceReset(void);
int cuMemAllocAsync(void **, size_t, void *), cuMemAllocFromPoolAsync(void **, size_t, void *, void *), cuMemFreeAsync(void *, void *), cuMemFree_v2(void *);
int cuMemPoolCreate(void **, const void *), cuMemPoolDestroy(void *), cuDeviceSetMemPool(int, void *), cuCtxSynchronize(void);

static const size_t MIB = 1 << 20;
static void *pool;
static uint64_t of(void *which, int attribute) {
    uint64_t value;
    EQUAL(cudaMemPoolGetAttribute(which, attribute, &value), 0);
    return value;
}
static void say(const char *when, void *which) {
    printf("%s: reserved %" PRIu64 " at most %" PRIu64 ", used %" PRIu64 " at most %" PRIu64 "\n", when, of(which, 5), of(which, 6),
           of(which, 7), of(which, 8));
}
// Something that takes a while on the stream: a byte of it says that it was done.
static void busy(void *at, size_t bytes, void *stream) {
    for (int i = 0; i < 8; i++) EQUAL(cudaMemsetAsync(at, i, bytes, stream), 0);
}
static int byte(const void *at) {
    unsigned char value;
    EQUAL(cudaMemcpy(&value, at, 1, 2), 0);
    return value;
}

static void fit(void) {
    void *a, *b, *x, *y, *z;
    uint64_t all = UINT64_MAX, none = 0;
    EQUAL(cudaStreamCreateWithFlags(&a, 1) | cudaStreamCreateWithFlags(&b, 1), 0);
    EQUAL(cudaMemPoolSetAttribute(pool, 4, &all), 0);
    EQUAL(of(pool, 4), all);
    EQUAL(cudaMallocAsync(&x, 40 * MIB, a), 0);
    EQUAL(cudaMallocAsync(&y, 100, a), 0);
    say("a large and a small one", pool);
    // Each door, and each again.
    EQUAL(cudaFreeAsync(x, a) | cuMemFreeAsync(y, a), 0);
    EQUAL(cudaFreeAsync(x, a), 1);
    EQUAL(cudaGetLastError(), 1);
    EQUAL(cuMemFreeAsync(y, a), 1);
    EQUAL(cudaFree(x), 1);
    EQUAL(cuMemFree_v2(y), 1);
    EQUAL(cudaGetLastError(), 1);
    EQUAL(cuMemAllocAsync(&y, 40 * MIB, a), 0);
    printf("the same stream has it back: %d\n", x == y);
    EQUAL(cudaFree((char *)y + 512), 1);
    EQUAL(cudaGetLastError(), 1);
    // While its stream is busy, others have other memory; afterwards they have it, by whichever door it was freed.
    busy(y, 40 * MIB, a);
    EQUAL(cudaStreamQuery(a), 600);
    EQUAL(cudaFreeAsync(y, a), 0);
    EQUAL(cudaMallocAsync(&z, 40 * MIB, b), 0);
    printf("another has other memory: %d\n", z != y);
    EQUAL(cudaMemsetAsync(z, 99, 1, b), 0);
    EQUAL(cudaStreamSynchronize(a), 0);
    EQUAL(byte(z), 99);
    EQUAL(cudaMallocAsync(&x, 40 * MIB, b), 0);
    printf("once it got there: %d\n", x == y);
    EQUAL(cudaFree(z), 0);
    EQUAL(cudaMallocAsync(&y, 40 * MIB, a), 0);
    printf("what was freed at once is anybody's: %d\n", y == z);
    EQUAL(cuMemFree_v2(x), 0);
    EQUAL(cudaFreeAsync(y, a), 0);
    say("two at once", pool);
    EQUAL(cudaMemPoolSetAttribute(pool, 6, &none) | cudaMemPoolSetAttribute(pool, 8, &none), 0);
    EQUAL(cudaMemPoolSetAttribute(pool, 8, &all), 1);
    cudaGetLastError();
    say("counted anew", pool);
    EQUAL(cudaDeviceSynchronize(), 0);
    EQUAL(cudaMemPoolTrimTo(pool, 50 * MIB), 0);
    say("trimmed", pool);
    EQUAL(cudaMemPoolSetAttribute(pool, 4, &none), 0);
    EQUAL(cuCtxSynchronize(), 0);
    say("waited with nothing to keep", pool);
    // A stream that is gone, and one's own default stream.
    EQUAL(cudaMallocAsync(&x, 2 * MIB, a), 0);
    busy(x, 2 * MIB, a);
    EQUAL(cudaFreeAsync(x, a), 0);
    EQUAL(cudaStreamDestroy(a), 0);
    EQUAL(cudaMallocAsync_ptsz(&y, 2 * MIB, NULL), 0);
    printf("nobody's stream, nobody's memory yet: %d\n", x != y);
    EQUAL(cudaFreeAsync_ptsz(y, NULL), 0);
    EQUAL(cudaMallocAsync(&z, 2 * MIB, (void *)2), 0);
    printf("the thread's own stream by its other name: %d\n", z == y);
    EQUAL(cudaFreeAsync(z, NULL), 0);
    EQUAL(cudaDeviceSynchronize(), 0);
    say("all freed", pool);
    // A pool of the program's own, with a limit; its memory outlives it.
    struct { int type, handles, where, id; void *security; size_t max; unsigned short usage; char reserved[54]; } props = {1, 0, 1, 0, 0, 40 * MIB, 0, {0}};
    void *own;
    EQUAL(cuMemPoolCreate(&own, &props), 0);
    EQUAL(cudaMallocFromPoolAsync(&x, 20 * MIB, own, b), 0);
    EQUAL(cuMemAllocFromPoolAsync(&y, 21 * MIB, own, b), 2);
    EQUAL(cudaMallocFromPoolAsync(&y, 21 * MIB, own, b), 2);
    EQUAL(cudaGetLastError(), 2);
    EQUAL(cuDeviceSetMemPool(0, own), 0);
    EQUAL(cudaMallocAsync(&y, 20 * MIB, b), 0);
    say("the program's own", own);
    EQUAL(cuMemPoolDestroy(own), 0);
    EQUAL(cudaMallocAsync(&z, 4 * MIB, b), 0);
    say("the default again", pool);
    EQUAL(cudaMemsetAsync(x, 7, 20 * MIB, b), 0);
    EQUAL(cudaStreamSynchronize(b), 0);
    EQUAL(byte((char *)x + 20 * MIB - 1), 7);
    EQUAL(cudaFreeAsync(x, b) | cudaFreeAsync(y, b) | cudaFreeAsync(z, b), 0);
    // Memory of no pool may be freed in stream order.
    EQUAL(cudaMalloc(&x, 4 * MIB), 0);
    EQUAL(cudaFreeAsync(x, b), 0);
    EQUAL(cudaDeviceSynchronize(), 0);
    say("in the end", pool);
    // What pools handed out outlives the context; whoever is off by then may still be asked to free it.
    EQUAL(cudaMallocAsync(&x, 4 * MIB, NULL), 0);
    EQUAL(cudaDeviceReset(), 0);
    EQUAL(cudaFreeAsync(x, NULL), 0);
    printf("freed\n");
}

// Writes and reads 256 MiB in pieces of two streams, and gives half of them back and takes them again, on the other stream.
static void big(void) {
    enum { PIECES = 32 };
    void *at[PIECES], *stream[2];
    uint64_t all = UINT64_MAX;
    EQUAL(cudaMemPoolSetAttribute(pool, 4, &all), 0);
    EQUAL(cudaStreamCreateWithFlags(&stream[0], 1) | cudaStreamCreateWithFlags(&stream[1], 1), 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PIECES; i++) {
            if (round && i % 2) continue;
            void *on = stream[(i / 2 + round) % 2];
            int status = cudaMallocAsync(&at[i], 8 * MIB, on);
            if (status == 2) {
                printf("out of memory\n");
                exit(3);
            }
            EQUAL(status, 0);
            EQUAL(cudaMemsetAsync(at[i], i + 100 * round, 8 * MIB, on), 0);
        }
        EQUAL(cudaDeviceSynchronize(), 0);
        for (int i = 0; i < PIECES; i++) EQUAL(byte((char *)at[i] + 4 * MIB), (i + 100 * (i % 2 ? 0 : round)) & 0xff);
        for (int i = 0; i < PIECES; i += 2) EQUAL(cudaFreeAsync(at[i], stream[(i / 2 + round) % 2]), 0);
    }
    printf("used %" PRIu64 " MiB at most\n", of(pool, 8) / MIB);
    for (int i = 1; i < PIECES; i += 2) EQUAL(cudaFree(at[i]), 0);
    EQUAL(cudaDeviceSynchronize(), 0);
    EQUAL(cudaMemPoolTrimTo(pool, 0), 0);
    EQUAL(of(pool, 5) | of(pool, 7), 0);
}

int main(int argc, char **argv) {
    EQUAL(argc, 2);
    // The very first call: the runtime sets itself up inside it.
    void *first;
    EQUAL(cudaMallocAsync(&first, 64, NULL), 0);
    EQUAL(cudaDeviceGetDefaultMemPool(&pool, 0), 0);
    EQUAL(of(pool, 7), 512);
    EQUAL(cudaFreeAsync(first, NULL), 0);
    EQUAL(cudaDeviceSynchronize(), 0);
    EQUAL(of(pool, 5), 0);
    if (!strcmp(argv[1], "fit")) fit();
    else big();
    return 0;
}
