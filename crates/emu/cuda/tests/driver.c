/* A program that uses the stand-in libcuda.so.1 as vendor libraries do: dlopen, cuGetProcAddress, and on from there.
 * Usage: driver LIBRARY CASE. Exits 0, or says which check failed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <pthread.h>
#include <unistd.h>

typedef int R;
typedef struct { char bytes[64]; } ipc_handle;
typedef uint64_t Ptr;
typedef void *H;
typedef R (*GetProc)(const char *, void **, int, uint64_t, int *);

static void *library;
static GetProc get_proc;

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s\n", __LINE__, #x); exit(1); } } while (0)
#define OK(x) do { R r_ = (x); if (r_) { fprintf(stderr, "line %d: %s answered %d\n", __LINE__, #x, r_); exit(1); } } while (0)

static void *find(const char *name, int version) {
    void *at = 0;
    int status = -1;
    OK(get_proc(name, &at, version, 0, &status));
    CHECK(at && status == 0);
    return at;
}
#define F(ret, name, version, ...) ret (*name)(__VA_ARGS__) = (ret (*)(__VA_ARGS__))find(#name, version)

static H start(void) {
    F(R, cuInit, 2000, unsigned);
    F(R, cuDevicePrimaryCtxRetain, 7000, H *, int);
    F(R, cuCtxSetCurrent, 4000, H);
    H context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

static const char *PTX =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry deepum_test_scale(\n"
    "    .param .u64 p0,\n    .param .u64 p1,\n    .param .u64 p2\n)\n{\n    ret;\n}\n";

static H scale(void) {
    F(R, cuModuleLoadData, 2000, H *, const void *);
    F(R, cuModuleGetFunction, 2000, H *, H, const char *);
    H module, function, none;
    OK(cuModuleLoadData(&module, PTX));
    OK(cuModuleGetFunction(&function, module, "deepum_test_scale"));
    CHECK(cuModuleGetFunction(&none, module, "missing") == 500);
    return function;
}

/* Before cuInit there is nothing; afterwards a device, contexts and names. */
static void devices(void) {
    F(R, cuDeviceGetCount, 2000, int *);
    F(R, cuDriverGetVersion, 2020, int *);
    int count = -1, version;
    CHECK(cuDeviceGetCount(&count) == 3);
    OK(cuDriverGetVersion(&version)); /* needs no cuInit */
    CHECK(version == 12040);
    H context = start();
    OK(cuDeviceGetCount(&count));
    CHECK(count == 2);
    F(R, cuDeviceGetAttribute, 2000, int *, int, int);
    int value;
    OK(cuDeviceGetAttribute(&value, 75, 1));
    CHECK(value >= 8);
    CHECK(cuDeviceGetAttribute(&value, 75, 2) == 101);
    CHECK(cuDeviceGetAttribute(&value, 9999, 0) == 1);
    F(R, cuDeviceGetUuid, 11040, char *, int);
    char a[16], b[16];
    OK(cuDeviceGetUuid(a, 0));
    OK(cuDeviceGetUuid(b, 1));
    CHECK(memcmp(a, b, 16));
    F(R, cuCtxGetCurrent, 4000, H *);
    H current;
    OK(cuCtxGetCurrent(&current));
    CHECK(current == context);
    F(R, cuGetErrorName, 6000, R, const char **);
    const char *name;
    OK(cuGetErrorName(2, &name));
    CHECK(!strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY"));
    CHECK(cuGetErrorName(12345, &name) == 1 && !name);
}

/* A function of the same name in the program, as a preloaded library has them: not what the library's own door answers. */
R cuMemAlloc_v2(Ptr *out, size_t bytes) { (void)out, (void)bytes; return 12345; }

/* The door answers for itself, tells versions apart, and says when it knows nothing. */
static void proc_address(void) {
    CHECK(find("cuGetProcAddress", 12000) == (void *)get_proc);
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == (void *)cuMemAlloc_v2);
    CHECK(find("cuMemAlloc", 12000) == dlsym(library, "cuMemAlloc_v2") && find("cuMemAlloc", 12000) != (void *)cuMemAlloc_v2);
    CHECK(find("cuMemPrefetchAsync", 8000) == dlsym(library, "cuMemPrefetchAsync"));
    CHECK(find("cuMemPrefetchAsync", 13000) == dlsym(library, "cuMemPrefetchAsync_v2"));
    void *twin;
    OK(get_proc("cuLaunchKernel", &twin, 12000, 2, 0));
    CHECK(twin == dlsym(library, "cuLaunchKernel_ptsz"));
    int status = -1;
    CHECK(get_proc("cuNothing", &twin, 12000, 0, &status) == 500 && !twin && status == 1);
    CHECK(get_proc("cuStreamGetCtx_v2", &twin, 12000, 0, 0) == 0); /* exported names are names */
    CHECK(get_proc("cuMemsetD16", &twin, 2000, 0, &status) == 500 && status == 2); /* of a later version */
    /* A function that is refused exists, and refuses. */
    F(R, cuMemPoolExportPointer, 11020, void *, Ptr);
    H pool;
    CHECK(cuMemPoolExportPointer(&pool, 0) == 801);
}

/* Launches by pointers and by packed buffer compute the same; parameters are those of the image. */
static void launches(void) {
    start();
    H function = scale();
    F(R, cuFuncGetParamInfo, 12040, H, size_t, size_t *, size_t *);
    size_t offset, size;
    OK(cuFuncGetParamInfo(function, 2, &offset, &size));
    CHECK(offset == 16 && size == 8);
    CHECK(cuFuncGetParamInfo(function, 3, &offset, &size) == 1);
    F(R, cuFuncGetName, 12030, const char **, H);
    const char *name;
    OK(cuFuncGetName(&name, function));
    CHECK(!strcmp(name, "deepum_test_scale"));

    F(R, cuMemAllocManaged, 6000, Ptr *, size_t, unsigned);
    F(R, cuMemcpyHtoD, 3020, Ptr, const void *, size_t);
    F(R, cuMemcpyDtoH, 3020, void *, Ptr, size_t);
    F(R, cuLaunchKernel, 4000, H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
    Ptr x;
    OK(cuMemAllocManaged(&x, 8 << 20, 1));
    CHECK(x % (2 << 20) == 0);
    CHECK(cuMemAllocManaged(&x, 0, 1) == 1 && cuMemAllocManaged(&x, 4096, 0) == 1);
    float in[4] = {1, 2, 3, 4}, out[4];
    OK(cuMemcpyHtoD(x, in, sizeof in));
    float two = 2;
    uint64_t count = 4, factor = 0;
    memcpy(&factor, &two, 4);
    void *params[] = {&x, &count, &factor};
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, params, 0));
    uint64_t packed[3] = {x, count, factor};
    size_t length = sizeof packed;
    void *extra[] = {(void *)1, packed, (void *)2, &length, 0};
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, (H)2, 0, extra));
    OK(cuMemcpyDtoH(out, x, sizeof out));
    for (int i = 0; i < 4; i++) CHECK(out[i] == 2 * (2 * in[i] + 1) + 1);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, 0, params, 0) == 1);
    CHECK(cuLaunchKernel((H)0x1234, 1, 1, 1, 32, 1, 1, 0, 0, params, 0) == 400);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0) == 1);
    /* Dynamic shared memory beyond 48 KiB must be allowed first. */
    F(R, cuFuncSetAttribute, 9000, H, int, int);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 49153, 0, params, 0) == 1);
    OK(cuFuncSetAttribute(function, 8, 65536));
    uint64_t one = 0x3f800000, nothing = 0;
    void *none[] = {&x, &nothing, &one};
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 49153, 0, none, 0));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 65537, 0, none, 0) == 1);
    F(R, cuCtxSynchronize, 2000, void);
    OK(cuCtxSynchronize());
}

/* A cooperative launch fits on the device at once: 80 multiprocessors of 2048 threads. */
static void cooperative(void) {
    start();
    H function = scale();
    F(R, cuLaunchCooperativeKernel, 9000, H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **);
    F(R, cuLaunchKernelEx, 11060, void *, H, void **, void **);
    uint64_t zero = 0;
    void *params[] = {&zero, &zero, &zero};
    OK(cuLaunchCooperativeKernel(function, 160, 1, 1, 1024, 1, 1, 0, 0, params));
    CHECK(cuLaunchCooperativeKernel(function, 161, 1, 1, 1024, 1, 1, 0, 0, params) == 720);
    struct { unsigned id, pad, value[16]; } attribute = {2, 0, {1}};
    struct { unsigned grid[3], block[3], shared; H stream; void *attributes; unsigned count; } config =
        {{1, 161, 1}, {1024, 1, 1}, 0, 0, &attribute, 1};
    CHECK(cuLaunchKernelEx(&config, function, params, 0) == 720);
    attribute.value[0] = 0;
    OK(cuLaunchKernelEx(&config, function, params, 0));
    attribute.id = 7; /* an event in the middle of a kernel */
    CHECK(cuLaunchKernelEx(&config, function, params, 0) == 801);
}

/* Ends as a crash does: nothing runs at its end. */
static void killed(void) {
    launches();
    kill(getpid(), SIGKILL);
}

/* The primary context: usable while retained, and what lives in it ends with the last release or a reset. */
static void contexts(void) {
    H context = start(), again, stream;
    F(R, cuDevicePrimaryCtxRetain, 7000, H *, int);
    F(R, cuDevicePrimaryCtxRelease, 11000, int);
    F(R, cuDevicePrimaryCtxReset, 11000, int);
    F(R, cuDevicePrimaryCtxGetState, 7000, int, unsigned *, int *);
    F(R, cuDevicePrimaryCtxSetFlags, 11000, int, unsigned);
    F(R, cuCtxSetCurrent, 4000, H);
    F(R, cuCtxEnablePeerAccess, 4000, H, unsigned);
    F(R, cuCtxSetLimit, 3010, int, size_t);
    F(R, cuCtxGetLimit, 3010, size_t *, int);
    F(R, cuMemAlloc, 3020, Ptr *, size_t);
    F(R, cuMemAllocManaged, 6000, Ptr *, size_t, unsigned);
    F(R, cuMemGetInfo, 3020, size_t *, size_t *);
    F(R, cuMemFree, 3020, Ptr);
    F(R, cuStreamCreate, 2000, H *, unsigned);
    F(R, cuStreamQuery, 2000, H);
    F(R, cuCtxCreate, 4000, H *, unsigned, int);
    CHECK(cuCtxCreate(&again, 0, 0) == 801);
    size_t all, left, total, limit;
    Ptr p, managed;
    OK(cuMemGetInfo(&all, &total));
    OK(cuMemAlloc(&p, 4 << 20));
    OK(cuMemAllocManaged(&managed, 4096, 1));
    OK(cuStreamCreate(&stream, 0));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(again == context);
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuMemGetInfo(&left, &total)); /* still retained once: nothing ended */
    CHECK(all - left == 4 << 20);
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == all && cuMemFree(p) == 1 && cuMemFree(managed) == 1 && cuStreamQuery(stream) == 400);
    OK(cuMemAlloc(&p, 4 << 20));
    OK(cuDevicePrimaryCtxRelease(0));
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active && cuMemAlloc(&p, 4096) == 201 && cuCtxSetCurrent(context) == 201);
    CHECK(cuDevicePrimaryCtxRelease(0) == 201);
    CHECK(cuDevicePrimaryCtxSetFlags(0, 0x100) == 1 && cuDevicePrimaryCtxSetFlags(0, 0x80) == 801);
    OK(cuDevicePrimaryCtxSetFlags(0, 4));
    start();
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active && flags == 4);
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == all);
    /* An event is recorded where it was made. */
    F(R, cuEventCreate, 2000, H *, unsigned);
    F(R, cuEventRecord, 2000, H, H);
    F(R, cuStreamWaitEvent, 3020, H, H, unsigned);
    H event, far;
    OK(cuEventCreate(&event, 0));
    OK(cuDevicePrimaryCtxRetain(&again, 1));
    OK(cuCtxSetCurrent(again));
    OK(cuStreamCreate(&far, 1));
    CHECK(cuEventRecord(event, far) == 400);
    OK(cuCtxSetCurrent(context));
    OK(cuEventRecord(event, 0));
    OK(cuStreamWaitEvent(far, event, 0));
    /* Limits are a context's own; peers there are none. */
    OK(cuCtxSetLimit(0, 4096));
    CHECK(cuCtxEnablePeerAccess(again, 0) == 217 && cuCtxEnablePeerAccess(context, 0) == 201);
    OK(cuCtxSetCurrent(again));
    OK(cuCtxGetLimit(&limit, 0));
    CHECK(limit == 1024 && cuCtxGetLimit(&limit, 7) == 215);
    OK(cuCtxSetCurrent(context));
    OK(cuCtxGetLimit(&limit, 0));
    CHECK(limit == 4096);
}

/* What a copy is, its addresses decide, but device memory must be the driver's; who waits, the kind of memory decides. */
static void copies(void) {
    start();
    F(R, cuMemAlloc, 3020, Ptr *, size_t);
    F(R, cuMemAllocManaged, 6000, Ptr *, size_t, unsigned);
    F(R, cuMemHostAlloc, 2020, void **, size_t, unsigned);
    F(R, cuMemcpyHtoD, 3020, Ptr, const void *, size_t);
    F(R, cuMemcpyDtoH, 3020, void *, Ptr, size_t);
    F(R, cuMemcpyDtoD, 3020, Ptr, Ptr, size_t);
    F(R, cuMemcpy, 4000, Ptr, Ptr, size_t);
    F(R, cuMemcpyAsync, 4000, Ptr, Ptr, size_t, H);
    F(R, cuMemsetD8, 3020, Ptr, unsigned char, size_t);
    F(R, cuMemsetD8Async, 3020, Ptr, unsigned char, size_t, H);
    F(R, cuStreamQuery, 2000, H);
    F(R, cuStreamSynchronize, 2000, H);
    F(R, cuStreamCreate, 2000, H *, unsigned);
    F(R, cuStreamWaitValue32, 11070, H, Ptr, unsigned, unsigned);
    char from[64], to[64] = {0}, *pinned;
    memset(from, 7, sizeof from);
    Ptr device, managed;
    const size_t large = 64 << 20;
    OK(cuMemAlloc(&device, 2 * large));
    OK(cuMemAllocManaged(&managed, large, 1));
    OK(cuMemHostAlloc((void **)&pinned, 4096, 0));
    CHECK(cuMemcpyHtoD((Ptr)to, from, 64) == 1 && cuMemcpyDtoH(to, (Ptr)from, 64) == 1);
    CHECK(cuMemcpyDtoD(device, (Ptr)from, 64) == 1);
    OK(cuMemcpyHtoD((Ptr)to, from, 0));
    OK(cuMemcpyHtoD(device, from, 64));
    OK(cuMemcpyDtoH(to, device, 64));
    CHECK(!memcmp(from, to, 64));
    /* Inside the device nobody waits, between host memories everybody does. */
    OK(cuMemcpy(device + large, device, large));
    CHECK(cuStreamQuery(0) == 600);
    OK(cuMemcpyAsync((Ptr)pinned, (Ptr)from, 64, 0));
    memset(from, 1, sizeof from);
    CHECK(pinned[63] == 7);
    OK(cuStreamQuery(0));
    /* Memory that the host can see is set when the call returns. */
    OK(cuMemsetD8(device, 3, large));
    CHECK(cuStreamQuery(0) == 600);
    OK(cuMemsetD8(managed, 3, large));
    OK(cuStreamQuery(0));
    R (*set_mine)(Ptr, unsigned char, size_t);
    OK(get_proc("cuMemsetD8", (void **)&set_mine, 7000, 2, 0));
    OK(set_mine(managed, 3, large));
    OK(cuStreamQuery((H)2));
    /* The NULL stream is waited for together with the blocking streams it waits for, and not with others. */
    H blocking, other;
    OK(cuStreamCreate(&blocking, 0));
    OK(cuStreamCreate(&other, 1));
    OK(cuMemsetD8Async(device, 3, large, blocking));
    CHECK(cuStreamQuery(0) == 600);
    OK(cuStreamSynchronize(0));
    OK(cuStreamQuery(blocking));
    OK(cuMemsetD8Async(device, 3, large, other));
    OK(cuStreamQuery(0));
    OK(cuStreamSynchronize(0));
    CHECK(cuStreamQuery(other) == 600);
    F(R, cuMemcpyPeer, 4000, Ptr, H, Ptr, H, size_t);
    H context = start();
    OK(cuMemcpyPeer(device, context, device + large, context, 64));
    CHECK(cuMemcpyPeer(device, context, device + large, blocking, 64) == 201);
    /* 3D: one call, slices of both pitches. */
    struct { size_t x, y, z, lod; int kind; void *host; Ptr device; void *array, *reserved; size_t pitch, height; } a = {0}, b = {0};
    struct { char src[88], dst[88]; size_t width, height, depth; } box = {.width = 2, .height = 2, .depth = 2};
    F(R, cuMemcpy3D, 3020, void *);
    for (int i = 0; i < 64; i++) from[i] = (char)i;
    a.kind = 1, a.host = from, a.pitch = 4, a.height = 3, a.x = 1;
    b.kind = 1, b.host = to, b.pitch = 2, b.height = 2;
    memcpy(box.src, &a, 88), memcpy(box.dst, &b, 88);
    OK(cuMemcpy3D(&box));
    CHECK(!memcmp(to, (char[]){1, 2, 5, 6, 13, 14, 17, 18}, 8));
    /* Operations on words: all or none, and no flush that nothing carries out. */
    F(R, cuStreamBatchMemOp, 11070, H, unsigned, void *, unsigned);
    uint64_t operations[2][6] = {{2, (Ptr)pinned, 5, 0}, {99}};
    unsigned *word = (unsigned *)pinned;
    CHECK(cuStreamBatchMemOp(0, 2, operations, 0) == 1);
    OK(cuStreamSynchronize(0));
    CHECK(*word != 5);
    operations[1][0] = 6;
    OK(cuStreamBatchMemOp(0, 2, operations, 0));
    OK(cuStreamSynchronize(0));
    CHECK(*word == 5);
    CHECK(cuStreamWaitValue32(0, (Ptr)word, 5, 1u << 30) == 801 && cuStreamWaitValue32(0, (Ptr)word, 5, 4) == 1);
    F(R, cuThreadExchangeStreamCaptureMode, 10010, int *);
    int mode = 2;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == 0);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == 2 && (mode = 3, cuThreadExchangeStreamCaptureMode(&mode) == 1));
}

/* Managed ranges: what was said of them by call, by batch, and by parts. */
static void ranges(void) {
    start();
    F(R, cuMemAllocManaged, 6000, Ptr *, size_t, unsigned);
    F(R, cuMemAdvise, 12020, Ptr, size_t, int, uint64_t);
    F(R, cuMemRangeGetAttribute, 8000, void *, size_t, int, Ptr, size_t);
    F(R, cuMemPrefetchBatchAsync, 13000, Ptr *, size_t *, size_t, uint64_t *, size_t *, size_t, uint64_t, H);
    F(R, cuMemDiscardAndPrefetchBatchAsync, 13000, Ptr *, size_t *, size_t, uint64_t *, size_t *, size_t, uint64_t, H);
    F(R, cuStreamCreate, 2000, H *, unsigned);
    R (*prefetch_12)(Ptr, size_t, int, H), (*prefetch_13)(Ptr, size_t, uint64_t, unsigned, H);
    prefetch_12 = (R (*)(Ptr, size_t, int, H))find("cuMemPrefetchAsync", 8000);
    prefetch_13 = (R (*)(Ptr, size_t, uint64_t, unsigned, H))find("cuMemPrefetchAsync", 12020);
    const uint64_t gpu0 = 1, gpu1 = 1 | 1ull << 32, host = 2, host_node = 3, nowhere = 0;
    const size_t mib = 1 << 20;
    Ptr m;
    int value, users[3];
    OK(cuMemAllocManaged(&m, 8 * mib, 1));
    /* Read mostly: of the whole, then again of a half, is of the whole; not of it once a part is taken back. */
    OK(cuMemAdvise(m, 8 * mib, 1, nowhere));
    OK(cuMemAdvise(m, 4 * mib, 1, nowhere));
    OK(cuMemRangeGetAttribute(&value, 4, 1, m, 8 * mib));
    CHECK(value == 1);
    OK(cuMemAdvise(m + 2 * mib, mib, 2, nowhere));
    OK(cuMemRangeGetAttribute(&value, 4, 1, m, 8 * mib));
    CHECK(value == 0);
    OK(cuMemRangeGetAttribute(&value, 4, 1, m + 3 * mib, 5 * mib));
    CHECK(value == 1);
    /* Accessed by: each of several. */
    OK(cuMemAdvise(m, 8 * mib, 5, gpu1));
    OK(cuMemAdvise(m, 8 * mib, 5, host));
    OK(cuMemRangeGetAttribute(users, 12, 3, m, 8 * mib));
    CHECK(users[0] == 1 && users[1] == -1 && users[2] == -2);
    /* The last prefetch, in both forms and in batches. */
    OK(prefetch_12(m, 8 * mib, 1, 0));
    OK(cuMemRangeGetAttribute(&value, 4, 4, m, 8 * mib));
    CHECK(value == 1);
    OK(prefetch_13(m, 2 * mib, host_node, 0, 0));
    OK(cuMemRangeGetAttribute(&value, 4, 4, m, 8 * mib));
    CHECK(value == -2);
    OK(cuMemRangeGetAttribute(&value, 4, 4, m, 2 * mib));
    CHECK(value == -1);
    CHECK(prefetch_12(m, mib, 2, 0) == 101 && prefetch_13(m, mib, gpu0, 1, 0) == 1 && prefetch_12(m, 9 * mib, 0, 0) == 1);
    Ptr starts[3] = {m, m + 2 * mib, m + 4 * mib};
    size_t sizes[3] = {2 * mib, 2 * mib, 2 * mib}, groups[2] = {0, 2};
    uint64_t places[2] = {gpu0, gpu1};
    H stream;
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemPrefetchBatchAsync(starts, sizes, 3, places, groups, 2, 0, stream));
    OK(cuMemRangeGetAttribute(&value, 4, 4, m, 4 * mib));
    CHECK(value == 0);
    OK(cuMemRangeGetAttribute(&value, 4, 4, m + 4 * mib, 4 * mib));
    CHECK(value == 1);
    CHECK(cuMemPrefetchBatchAsync(starts, sizes, 3, places, groups, 2, 0, 0) == 1); /* not on the NULL stream */
    groups[0] = 1;
    CHECK(cuMemPrefetchBatchAsync(starts, sizes, 3, places, groups, 2, 0, stream) == 1);
    groups[0] = 0;
    OK(cuMemDiscardAndPrefetchBatchAsync(starts, sizes, 3, places, groups, 2, 0, stream));
}

/* Everything a program may ask of a pointer. */
static void pointers(void) {
    start();
    F(R, cuMemAlloc, 3020, Ptr *, size_t);
    F(R, cuMemAllocManaged, 6000, Ptr *, size_t, unsigned);
    F(R, cuMemHostAlloc, 2020, void **, size_t, unsigned);
    F(R, cuMemHostRegister, 6050, void *, size_t, unsigned);
    F(R, cuMemHostUnregister, 4000, void *);
    F(R, cuMemFree, 3020, Ptr);
    F(R, cuPointerGetAttribute, 4000, void *, int, Ptr);
    F(R, cuPointerGetAttributes, 7000, unsigned, int *, void **, Ptr);
    F(R, cuMemGetInfo, 3020, size_t *, size_t *);
    Ptr device, managed;
    void *pinned;
    size_t before, after, total;
    OK(cuMemGetInfo(&before, &total));
    OK(cuMemAlloc(&device, 10 << 20));
    OK(cuMemGetInfo(&after, &total));
    CHECK(before - after == 10 << 20);
    OK(cuMemAllocManaged(&managed, 1000, 1));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    memset(pinned, 7, 4096);
    unsigned type, is_managed;
    OK(cuPointerGetAttribute(&type, 2, device + 5));
    CHECK(type == 2);
    OK(cuPointerGetAttribute(&type, 2, (Ptr)pinned));
    CHECK(type == 1);
    OK(cuPointerGetAttribute(&is_managed, 8, managed));
    CHECK(is_managed == 1);
    OK(cuPointerGetAttribute(&is_managed, 8, device));
    CHECK(is_managed == 0);
    Ptr start_of;
    OK(cuPointerGetAttribute(&start_of, 11, managed + 999));
    CHECK(start_of == managed);
    static char mine[8192];
    CHECK(cuPointerGetAttribute(&type, 2, (Ptr)mine) == 1);
    int kinds[3] = {2, 11, 9}, ordinal;
    void *outs[3] = {&type, &start_of, &ordinal};
    OK(cuPointerGetAttributes(3, kinds, outs, (Ptr)mine));
    CHECK(type == 0 && start_of == 0 && ordinal == -2);
    OK(cuPointerGetAttributes(3, kinds, outs, managed));
    CHECK(type == 2 && start_of == managed && ordinal == 0);
    OK(cuMemHostRegister(mine, sizeof mine, 0));
    CHECK(cuMemHostRegister(mine + 100, 8, 0) == 712 && cuMemHostRegister(mine, 8, 4) == 801);
    OK(cuPointerGetAttribute(&type, 2, (Ptr)mine + 8000));
    CHECK(type == 1);
    OK(cuMemHostUnregister(mine));
    CHECK(cuMemHostUnregister(mine) == 713);
    OK(cuMemFree(device));
    CHECK(cuMemFree(device) == 1);
    CHECK(cuMemFree((Ptr)pinned) == 1);
    OK(cuMemFree(0));
    F(R, cuMemAdvise, 12020, Ptr, size_t, int, uint64_t);
    F(R, cuMemRangeGetAttribute, 8000, void *, size_t, int, Ptr, size_t);
    int where;
    OK(cuMemRangeGetAttribute(&where, 4, 2, managed, 1000));
    CHECK(where == -2);
    OK(cuMemAdvise(managed, 1000, 3, 1)); /* preferred location: {DEVICE, 0} */
    OK(cuMemRangeGetAttribute(&where, 4, 2, managed, 1000));
    CHECK(where == 0);
    CHECK(cuMemAdvise(device, 1000, 3, 1) == 1);
}

static uint64_t called_with;
static void host_function(void *p) { called_with = *(uint64_t *)p; }
static void stream_callback(H stream, R result, void *p) { called_with += *(uint64_t *)p + (stream && !result); }

/* Streams, events, words, functions of the program. */
static void streams(void) {
    start();
    H function = scale();
    F(R, cuStreamCreate, 2000, H *, unsigned);
    F(R, cuStreamDestroy, 4000, H);
    F(R, cuStreamSynchronize, 2000, H);
    F(R, cuStreamQuery, 2000, H);
    F(R, cuEventCreate, 2000, H *, unsigned);
    F(R, cuEventRecord, 2000, H, H);
    F(R, cuEventQuery, 2000, H);
    F(R, cuEventElapsedTime, 2000, float *, H, H);
    F(R, cuStreamWriteValue64, 11070, H, Ptr, uint64_t, unsigned);
    F(R, cuLaunchHostFunc, 10000, H, void (*)(void *), void *);
    F(R, cuStreamAddCallback, 5000, H, void (*)(H, R, void *), void *, unsigned);
    F(R, cuMemHostAlloc, 2020, void **, size_t, unsigned);
    F(R, cuMemAlloc, 3020, Ptr *, size_t);
    F(R, cuLaunchKernel, 4000, H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
    F(R, cuIpcGetEventHandle, 4010, ipc_handle *, H);
    F(R, cuIpcOpenEventHandle, 4010, H *, ipc_handle);
    F(R, cuMemHostRegister, 6050, void *, size_t, unsigned);
    ipc_handle handle;
    H stream, a, b, untimed;
    OK(cuStreamCreate(&stream, 1));
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuEventCreate(&untimed, 2));
    /* For other processes: takes no time. Registers of other devices are not to be had. */
    CHECK(cuEventCreate(&b, 4) == 1 && cuIpcGetEventHandle(&handle, a) == 400);
    OK(cuEventCreate(&b, 6));
    OK(cuEventRecord(b, 0));
    OK(cuEventQuery(b)); /* over when the record returns */
    OK(cuIpcGetEventHandle(&handle, b));
    CHECK(cuIpcOpenEventHandle(&b, handle) == 201);
    handle.bytes[0] ^= 1;
    CHECK(cuIpcOpenEventHandle(&b, handle) == 400);
    CHECK(cuMemHostRegister(&handle, sizeof handle, 4) == 801);
    OK(cuEventCreate(&b, 0));
    OK(cuEventQuery(a));
    Ptr x;
    OK(cuMemAlloc(&x, 64 << 20));
    uint64_t count = 16 << 20, factor = 0, *word;
    void *params[] = {&x, &count, &factor};
    OK(cuMemHostAlloc((void **)&word, 4096, 0));
    OK(cuEventRecord(a, stream));
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, 0));
    OK(cuEventRecord(b, stream));
    OK(cuEventRecord(untimed, stream));
    OK(cuStreamWriteValue64(stream, (Ptr)word, 77, 0));
    CHECK(*word == 0 && cuStreamQuery(stream) == 600 && cuEventQuery(b) == 600);
    uint64_t argument = 5;
    OK(cuLaunchHostFunc(stream, host_function, &argument));
    OK(cuStreamAddCallback(stream, stream_callback, &argument, 0));
    CHECK(called_with == 0);
    OK(cuStreamSynchronize(stream));
    CHECK(*word == 77 && called_with == 11);
    OK(cuStreamQuery(stream));
    float ms;
    OK(cuEventElapsedTime(&ms, a, b));
    CHECK(ms > 0.05 && ms < 1);
    CHECK(cuEventElapsedTime(&ms, a, untimed) == 400);
    CHECK(cuStreamWriteValue64(stream, (Ptr)&argument, 1, 0) == 1);
    OK(cuStreamDestroy(stream));
    CHECK(cuStreamDestroy(stream) == 400 && cuStreamSynchronize(stream) == 400);
    F(R, cuStreamIsCapturing, 10000, H, int *);
    int capturing = -1;
    OK(cuStreamIsCapturing(0, &capturing));
    CHECK(capturing == 0);
    F(R, cuArrayDestroy, 2000, H);
    CHECK(cuArrayDestroy(0) == 801);
}

typedef struct { int type, handles, where, id; void *security; size_t max; unsigned short usage; char reserved[54]; } pool_properties;
typedef struct { int where, id, flags; } pool_access;

/* Stream-ordered memory: free once its stream has got there, at once for that stream, and counted as device memory. */
static void pools(void) {
    H context = start(), function = scale();
    F(R, cuMemAllocAsync, 11020, Ptr *, size_t, H);
    F(R, cuMemFreeAsync, 11020, Ptr, H);
    F(R, cuMemFree, 3020, Ptr);
    F(R, cuMemAlloc, 3020, Ptr *, size_t);
    F(R, cuMemAllocFromPoolAsync, 11020, Ptr *, size_t, H, H);
    F(R, cuDeviceGetDefaultMemPool, 11020, H *, int);
    F(R, cuDeviceGetMemPool, 11020, H *, int);
    F(R, cuDeviceSetMemPool, 11020, int, H);
    F(R, cuMemPoolCreate, 11020, H *, pool_properties *);
    F(R, cuMemPoolDestroy, 11020, H);
    F(R, cuMemPoolTrimTo, 11020, H, size_t);
    F(R, cuMemPoolSetAttribute, 11020, H, int, void *);
    F(R, cuMemPoolGetAttribute, 11020, H, int, void *);
    F(R, cuMemPoolSetAccess, 11020, H, pool_access *, size_t);
    F(R, cuMemPoolGetAccess, 11020, int *, H, int *);
    F(R, cuMemGetInfo, 3020, size_t *, size_t *);
    F(R, cuPointerGetAttribute, 4000, void *, int, Ptr);
    F(R, cuMemGetAddressRange, 3020, Ptr *, size_t *, Ptr);
    F(R, cuDeviceGetAttribute, 2000, int *, int, int);
    F(R, cuDeviceGetGraphMemAttribute, 11040, int, int, uint64_t *);
    F(R, cuDeviceSetGraphMemAttribute, 11040, int, int, uint64_t *);
    F(R, cuStreamCreate, 2000, H *, unsigned);
    F(R, cuStreamSynchronize, 2000, H);
    F(R, cuCtxSynchronize, 2000, void);
    F(R, cuLaunchKernel, 4000, H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
    F(R, cuMemsetD8Async, 3020, Ptr, unsigned char, size_t, H);
    F(R, cuMemcpyDtoH, 3020, void *, Ptr, size_t);
    (void)context;
    const size_t mib = 1 << 20;
    int value = 0;
    uint64_t n, most = UINT64_MAX, zero = 0;
    OK(cuDeviceGetAttribute(&value, 115, 0));
    CHECK(value == 1);
    OK(cuDeviceGetAttribute(&value, 119, 0));
    CHECK(value == 0);
    n = 1;
    OK(cuDeviceGetGraphMemAttribute(0, 2, &n));
    CHECK(n == 0 && cuDeviceGetGraphMemAttribute(0, 4, &n) == 1);
    OK(cuDeviceSetGraphMemAttribute(0, 3, &zero));
    CHECK(cuDeviceSetGraphMemAttribute(0, 3, &most) == 1 && cuDeviceSetGraphMemAttribute(0, 2, &zero) == 1);
    H pool, again, a, b;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuDeviceGetMemPool(&again, 0));
    CHECK(pool == again && cuDeviceGetMemPool(&again, 2) == 101);
    for (int flag = 1; flag <= 3; flag++) {
        OK(cuMemPoolGetAttribute(pool, flag, &value));
        CHECK(value == 1);
    }
    OK(cuMemPoolGetAttribute(pool, 4, &n));
    CHECK(n == 0 && cuMemPoolGetAttribute(pool, 99, &n) == 1 && cuMemPoolGetAttribute(0, 4, &n) == 1);
    CHECK(cuMemPoolSetAttribute(pool, 5, &zero) == 1 && cuMemPoolSetAttribute(pool, 6, &most) == 1);
    OK(cuMemPoolSetAttribute(pool, 4, &most));
    OK(cuStreamCreate(&a, 1));
    OK(cuStreamCreate(&b, 1));
    size_t all, left, total;
    OK(cuMemGetInfo(&all, &total));
    Ptr x, y, z;
    CHECK(cuMemAllocAsync(&x, 0, a) == 1 && cuMemAllocAsync(&x, 8, (H)0x1230) == 400);
    OK(cuMemAllocAsync(&x, 64 * mib, a));
    OK(cuMemGetInfo(&left, &total));
    CHECK(all - left == 64 * mib);
    /* What the driver says of it. */
    OK(cuPointerGetAttribute(&value, 2, x + 5));
    CHECK(value == 2);
    OK(cuPointerGetAttribute(&n, 17, x + 5));
    CHECK(n == (uint64_t)pool);
    size_t len;
    OK(cuMemGetAddressRange(&y, &len, x + 5));
    CHECK(y == x && len == 64 * mib);
    /* While the kernel before the free runs, another stream gets other memory, and the same stream the same. */
    uint64_t count = 16 * mib, factor = 0;
    void *params[] = {&x, &count, &factor};
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, a, params, 0));
    OK(cuMemFreeAsync(x, a));
    CHECK(cuPointerGetAttribute(&value, 2, x) == 1 && cuMemFreeAsync(x, a) == 1 && cuMemFree(x) == 1);
    OK(cuMemAllocAsync(&y, 64 * mib, b));
    CHECK(y != x);
    OK(cuMemAllocAsync(&z, 64 * mib, a));
    CHECK(z == x);
    OK(cuMemPoolGetAttribute(pool, 5, &n));
    CHECK(n == 128 * mib);
    OK(cuMemPoolGetAttribute(pool, 7, &n));
    CHECK(n == 128 * mib);
    OK(cuMemFreeAsync(z, a));
    OK(cuMemFree(y)); /* by the other door: at once */
    OK(cuMemPoolGetAttribute(pool, 7, &n));
    CHECK(n == 0);
    OK(cuMemPoolGetAttribute(pool, 8, &n));
    CHECK(n == 128 * mib);
    OK(cuMemPoolSetAttribute(pool, 8, &zero));
    OK(cuMemPoolGetAttribute(pool, 8, &n));
    CHECK(n == 0);
    OK(cuMemAllocAsync(&y, 64 * mib, a));
    OK(cuMemAllocAsync(&z, 64 * mib, a));
    OK(cuMemPoolGetAttribute(pool, 5, &n));
    CHECK(n == 128 * mib);
    /* Once the stream has got there it is anybody's. */
    OK(cuMemFreeAsync(y, a));
    OK(cuStreamSynchronize(a));
    OK(cuMemAllocAsync(&x, 64 * mib, b));
    CHECK(x == y);
    OK(cuMemFreeAsync(x, b));
    OK(cuMemFreeAsync(z, b));
    OK(cuCtxSynchronize()); /* the threshold is high: all of it stays */
    OK(cuMemPoolGetAttribute(pool, 5, &n));
    CHECK(n == 128 * mib);
    OK(cuMemPoolTrimTo(pool, 100 * mib));
    OK(cuMemPoolGetAttribute(pool, 5, &n));
    CHECK(n == 128 * mib);
    OK(cuMemPoolTrimTo(pool, 64 * mib));
    OK(cuMemPoolGetAttribute(pool, 5, &n));
    CHECK(n == 64 * mib);
    OK(cuMemPoolSetAttribute(pool, 4, &zero));
    OK(cuStreamSynchronize(a)); /* and now it is not */
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == all);
    /* Where memory runs out: what other streams freed, and an error in the end. */
    OK(cuMemAllocAsync(&x, all / 2, a));
    void *long_params[] = {&x, &count, &factor};
    for (int i = 0; i < 20; i++) OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, a, long_params, 0));
    OK(cuMemsetD8Async(x, 9, 64, a));
    OK(cuMemFreeAsync(x, a));
    CHECK(cuMemAllocAsync(&y, all / 2 + 4 * mib, b) == 2);
    int off = 0, on = 1;
    OK(cuMemPoolSetAttribute(pool, 3, &off));
    CHECK(cuMemAllocAsync(&y, all / 2, b) == 0);
    CHECK(y != x && cuMemAllocAsync(&z, all / 2, b) == 2);
    OK(cuMemPoolSetAttribute(pool, 3, &on));
    OK(cuMemAllocAsync(&z, all / 2, b));
    CHECK(z == x);
    OK(cuMemsetD8Async(z, 5, 64, b));
    unsigned char byte;
    OK(cuStreamSynchronize(b));
    OK(cuMemcpyDtoH(&byte, z, 1)); /* behind all that the other stream did */
    CHECK(byte == 5 && cuMemAlloc(&x, 64 * mib) == 2);
    OK(cuMemFreeAsync(y, b));
    OK(cuMemFreeAsync(z, b));
    OK(cuCtxSynchronize());
    OK(cuMemAlloc(&x, all / 2));
    OK(cuMemFreeAsync(x, a)); /* memory of no pool */
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == all);
    /* Pools of a program's own. */
    pool_properties properties = {1, 0, 1, 0, 0, 40 * mib, 0, {0}};
    H own;
    OK(cuMemPoolCreate(&own, &properties));
    CHECK(own != pool && cuMemAllocFromPoolAsync(&x, 8, (H)0x55, a) == 1);
    OK(cuMemAllocFromPoolAsync(&x, 20 * mib, own, a));
    CHECK(cuMemAllocFromPoolAsync(&y, 21 * mib, own, a) == 2);
    OK(cuPointerGetAttribute(&n, 17, x));
    CHECK(n == (uint64_t)own);
    OK(cuDeviceSetMemPool(0, own));
    OK(cuMemAllocAsync(&y, 20 * mib, a));
    CHECK(cuMemAllocAsync(&z, 1 * mib, a) == 2);
    CHECK(cuMemPoolDestroy(pool) == 1);
    OK(cuMemPoolDestroy(own));
    CHECK(cuMemPoolDestroy(own) == 1 && cuMemPoolGetAttribute(own, 5, &n) == 1);
    OK(cuDeviceGetMemPool(&again, 0));
    CHECK(again == pool);
    OK(cuMemFreeAsync(x, a)); /* what it handed out lives on until it is freed */
    OK(cuMemFreeAsync(y, a));
    OK(cuStreamSynchronize(a));
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == all);
    properties.handles = 1;
    CHECK(cuMemPoolCreate(&own, &properties) == 801);
    properties.handles = 0, properties.where = 2;
    CHECK(cuMemPoolCreate(&own, &properties) == 801);
    properties.where = 1, properties.id = 7;
    CHECK(cuMemPoolCreate(&own, &properties) == 101);
    /* A context's end is not theirs. */
    F(R, cuDevicePrimaryCtxReset, 11000, int);
    OK(cuMemAllocAsync(&x, 64, 0));
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuMemFreeAsync(x, 0));
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == all);
    /* Its own device reaches it, and nobody else does. */
    pool_access access = {1, 0, 3};
    int location[2] = {1, 0};
    OK(cuMemPoolSetAccess(pool, &access, 1));
    OK(cuMemPoolGetAccess(&value, pool, location));
    CHECK(value == 3);
    access.id = location[1] = 1;
    CHECK(cuMemPoolSetAccess(pool, &access, 1) == 801);
    OK(cuMemPoolGetAccess(&value, pool, location));
    CHECK(value == 0);
}

typedef struct { int type, handles, where, id; void *meta; unsigned char compression, rdma; unsigned short usage; char reserved[4]; } memory_properties;

/* Addresses that a program reserves, and memory that it makes and maps there. */
static void mappings(void) {
    start();
    F(R, cuMemAddressReserve, 10020, Ptr *, size_t, size_t, Ptr, uint64_t);
    F(R, cuMemAddressFree, 10020, Ptr, size_t);
    F(R, cuMemCreate, 10020, H *, size_t, memory_properties *, uint64_t);
    F(R, cuMemRelease, 10020, H);
    F(R, cuMemMap, 10020, Ptr, size_t, size_t, H, uint64_t);
    F(R, cuMemUnmap, 10020, Ptr, size_t);
    F(R, cuMemSetAccess, 10020, Ptr, size_t, pool_access *, size_t);
    F(R, cuMemGetAccess, 10020, uint64_t *, int *, Ptr);
    F(R, cuMemGetAllocationGranularity, 10020, size_t *, memory_properties *, int);
    F(R, cuMemExportToShareableHandle, 10020, void *, H, int, uint64_t);
    F(R, cuDeviceGetAttribute, 2000, int *, int, int);
    F(R, cuMemGetInfo, 3020, size_t *, size_t *);
    F(R, cuMemFree, 3020, Ptr);
    F(R, cuMemsetD8, 3020, Ptr, unsigned char, size_t);
    F(R, cuMemcpyDtoH, 3020, void *, Ptr, size_t);
    F(R, cuPointerGetAttribute, 4000, void *, int, Ptr);
    const size_t unit = 2 << 20;
    memory_properties properties = {1, 1, 1, 0, 0, 0, 0, 0, {0}};
    pool_access access = {1, 0, 3}, far = {1, 1, 3};
    int value, here[2] = {1, 0}, there[2] = {1, 1};
    size_t granularity, all, left, total;
    uint64_t flags;
    Ptr at, other;
    H a, b, c;
    OK(cuDeviceGetAttribute(&value, 102, 0));
    CHECK(value == 1);
    OK(cuDeviceGetAttribute(&value, 103, 0));
    CHECK(value == 1);
    OK(cuMemGetAllocationGranularity(&granularity, &properties, 0));
    CHECK(granularity == unit && cuMemGetAllocationGranularity(&granularity, &properties, 2) == 1);
    OK(cuMemGetInfo(&all, &total));
    /* Far more addresses than there is memory. */
    CHECK(cuMemAddressReserve(&at, unit + 1, 0, 0, 0) == 1 && cuMemAddressReserve(&at, unit, 3, 0, 0) == 1);
    OK(cuMemAddressReserve(&at, (size_t)1 << 40, 0, 0, 0));
    OK(cuMemAddressReserve(&other, unit, 4 * unit, 0, 0));
    CHECK(other % (4 * unit) == 0);
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == all);
    CHECK(cuMemCreate(&a, unit + 1, &properties, 0) == 1 && cuMemCreate(&a, unit, &properties, 1) == 1);
    properties.handles = 8; /* no fabric here */
    CHECK(cuMemCreate(&a, unit, &properties, 0) == 800);
    properties.handles = 2;
    CHECK(cuMemCreate(&a, unit, &properties, 0) == 801);
    properties.handles = 1;
    OK(cuMemCreate(&a, 2 * unit, &properties, 0));
    OK(cuMemCreate(&b, unit, &properties, 0));
    CHECK(cuMemCreate(&c, all, &properties, 0) == 2);
    OK(cuMemGetInfo(&left, &total));
    CHECK(all - left == 3 * unit && cuMemExportToShareableHandle(&value, a, 8, 0) == 801 && cuMemExportToShareableHandle(&value, a, 1, 1) == 1);
    CHECK(cuMemMap(at, 4 * unit, 0, a, 0) == 1 && cuMemMap(at, unit, 0, a, 0) == 801 && cuMemMap(other, 2 * unit, 0, a, 0) == 1);
    OK(cuMemMap(at + unit, 2 * unit, 0, a, 0));
    CHECK(cuMemMap(at + 2 * unit, unit, 0, b, 0) == 1 && cuMemMap(other, 2 * unit, 0, a, 0) == 1);
    OK(cuMemMap(at + 3 * unit, unit, 0, b, 0));
    /* Nobody's until access is granted, to its own device alone. */
    CHECK(cuMemsetD8(at + unit, 1, 8) == 1 && cuMemSetAccess(at, 2 * unit, &access, 1) == 1);
    CHECK(cuMemSetAccess(at + unit, 3 * unit, &far, 1) == 801 && cuMemsetD8(at + unit, 1, 8) == 1);
    OK(cuMemSetAccess(at + unit, 3 * unit, &access, 1));
    OK(cuMemGetAccess(&flags, here, at + unit));
    CHECK(flags == 3);
    OK(cuMemGetAccess(&flags, there, at + unit));
    CHECK(flags == 0 && cuMemGetAccess(&flags, here, at) == 1);
    OK(cuMemsetD8(at + unit, 7, 2 * unit));
    OK(cuMemsetD8(at + 3 * unit, 9, unit));
    unsigned char bytes[2];
    OK(cuMemcpyDtoH(bytes, at + 3 * unit - 1, 2)); /* across both */
    CHECK(bytes[0] == 7 && bytes[1] == 9);
    OK(cuPointerGetAttribute(&value, 2, at + unit));
    CHECK(value == 2 && cuMemFree(at + unit) == 1);
    /* It goes when neither the handle nor the mapping is left. */
    OK(cuMemRelease(a));
    CHECK(cuMemRelease(a) == 1 && cuMemMap(other, 2 * unit, 0, a, 0) == 1);
    OK(cuMemGetInfo(&left, &total));
    CHECK(all - left == 3 * unit && cuMemAddressFree(at, (size_t)1 << 40) == 1);
    CHECK(cuMemUnmap(at + unit, unit) == 1);
    OK(cuMemUnmap(at + unit, 2 * unit));
    CHECK(cuMemsetD8(at + 3 * unit - 8, 1, 8) == 1);
    OK(cuMemcpyDtoH(bytes, at + 4 * unit - 1, 1));
    CHECK(bytes[0] == 9);
    OK(cuMemUnmap(at + 3 * unit, unit));
    CHECK(cuMemsetD8(at + 3 * unit, 1, 8) == 1);
    OK(cuMemGetInfo(&left, &total));
    CHECK(all - left == unit && cuMemMap(at, unit, 0, b, 0) == 801);
    OK(cuMemRelease(b));
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == all && cuMemAddressFree(at, unit) == 1);
    OK(cuMemAddressFree(at, (size_t)1 << 40));
    CHECK(cuMemAddressFree(at, (size_t)1 << 40) == 1);
    OK(cuMemCreate(&c, unit, &properties, 0));
    OK(cuMemMap(other, unit, 0, c, 0));
    OK(cuMemSetAccess(other, unit, &access, 1));
}

/* Memory that goes to other processes, and comes back here; and places that a program wishes for. */
static void exports(void) {
    start();
    F(R, cuMemAddressReserve, 10020, Ptr *, size_t, size_t, Ptr, uint64_t);
    F(R, cuMemAddressFree, 10020, Ptr, size_t);
    F(R, cuMemCreate, 10020, H *, size_t, memory_properties *, uint64_t);
    F(R, cuMemRelease, 10020, H);
    F(R, cuMemMap, 10020, Ptr, size_t, size_t, H, uint64_t);
    F(R, cuMemUnmap, 10020, Ptr, size_t);
    F(R, cuMemSetAccess, 10020, Ptr, size_t, pool_access *, size_t);
    F(R, cuMemExportToShareableHandle, 10020, void *, H, int, uint64_t);
    F(R, cuMemImportFromShareableHandle, 10020, H *, void *, int);
    F(R, cuMemGetInfo, 3020, size_t *, size_t *);
    F(R, cuMemAlloc, 3020, Ptr *, size_t);
    F(R, cuMemAllocManaged, 6000, Ptr *, size_t, unsigned);
    F(R, cuMemFree, 3020, Ptr);
    F(R, cuMemsetD8, 3020, Ptr, unsigned char, size_t);
    F(R, cuMemcpyDtoH, 3020, void *, Ptr, size_t);
    F(R, cuIpcGetMemHandle, 4010, ipc_handle *, Ptr);
    F(R, cuIpcOpenMemHandle, 11000, Ptr *, ipc_handle, unsigned);
    F(R, cuIpcCloseMemHandle, 4010, Ptr);
    const size_t unit = 2 << 20;
    memory_properties properties = {1, 1, 1, 0, 0, 0, 0, 0, {0}};
    pool_access access = {1, 0, 3};
    size_t all, left, total;
    unsigned char bytes[2];
    int file, again;
    const size_t chunk = 32 << 20;
    Ptr at, other, managed, small, beside;
    H a, b;
    /* A place is given if it is free, also where managed memory was, and if it is more than 20 MiB. */
    OK(cuMemAllocManaged(&managed, 10 * unit, 1));
    OK(cuMemAllocManaged(&small, unit, 1));
    OK(cuMemAllocManaged(&beside, unit, 1));
    CHECK(small == managed + 10 * unit && beside == small + unit);
    OK(cuMemAddressReserve(&at, chunk, 0, managed, 0));
    CHECK(at != managed);
    OK(cuMemAddressFree(at, chunk));
    /* What lies in what another left of its chunk keeps it. */
    OK(cuMemFree(managed));
    OK(cuMemFree(small));
    OK(cuMemAddressReserve(&at, chunk, 0, managed, 0));
    CHECK(at != managed);
    OK(cuMemAddressFree(at, chunk));
    OK(cuMemFree(beside));
    OK(cuMemAddressReserve(&other, 10 * unit, 0, managed, 0));
    CHECK(other != managed);
    OK(cuMemAddressReserve(&at, chunk, 0, managed, 0));
    CHECK(at == managed);
    OK(cuMemAllocManaged(&managed, 10 * unit, 1));
    CHECK(at != managed);
    OK(cuMemGetInfo(&all, &total));
    OK(cuMemCreate(&a, unit, &properties, 0));
    OK(cuMemMap(at, unit, 0, a, 0));
    OK(cuMemSetAccess(at, unit, &access, 1));
    OK(cuMemsetD8(at, 5, unit));
    OK(cuMemExportToShareableHandle(&file, a, 1, 0));
    OK(cuMemExportToShareableHandle(&again, a, 1, 0));
    CHECK(file != again);
    /* What was exported keeps its contents where it is mapped nowhere, and is seen by all who have it. */
    OK(cuMemUnmap(at, unit));
    OK(cuMemImportFromShareableHandle(&b, (void *)(long)file, 1));
    CHECK(cuMemImportFromShareableHandle(&b, (void *)(long)file, 8) == 801);
    OK(cuMemMap(at, unit, 0, a, 0));
    OK(cuMemMap(other, unit, 0, b, 0));
    OK(cuMemSetAccess(at, unit, &access, 1));
    OK(cuMemSetAccess(other, unit, &access, 1));
    OK(cuMemcpyDtoH(bytes, other + unit - 1, 1));
    CHECK(bytes[0] == 5);
    OK(cuMemsetD8(other, 6, 1));
    OK(cuMemcpyDtoH(bytes, at, 2));
    CHECK(bytes[0] == 6 && bytes[1] == 5);
    /* It counts where it was made, once. */
    OK(cuMemGetInfo(&left, &total));
    CHECK(all - left == unit);
    OK(cuMemRelease(a));
    OK(cuMemUnmap(at, unit));
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == all);
    OK(cuMemcpyDtoH(bytes, other, 2));
    CHECK(bytes[0] == 6 && bytes[1] == 5);
    CHECK(ftruncate(file, 0) != 0); /* nobody takes pages away */
    OK(cuMemRelease(b));
    OK(cuMemUnmap(other, unit));
    OK(cuMemAddressFree(at, chunk));
    OK(cuMemAddressFree(other, 10 * unit));
    /* What is no memory, and what cannot be exported. */
    FILE *none = tmpfile();
    CHECK(none && cuMemImportFromShareableHandle(&b, (void *)(long)fileno(none), 1) == 1);
    CHECK(cuMemImportFromShareableHandle(&b, (void *)(long)-1, 1) == 1 && cuMemImportFromShareableHandle(&b, (void *)999999L, 1) == 1);
    properties.handles = 0;
    OK(cuMemCreate(&a, unit, &properties, 0));
    CHECK(cuMemExportToShareableHandle(&file, a, 1, 0) == 1);
    /* Handles are of memory of a device; here they are not opened. */
    ipc_handle handle;
    OK(cuMemAlloc(&at, 5000));
    OK(cuIpcGetMemHandle(&handle, at + 17));
    CHECK(cuIpcGetMemHandle(&handle, managed) == 1 && cuIpcGetMemHandle(&handle, 4096) == 1);
    CHECK(cuIpcOpenMemHandle(&other, handle, 1) == 201 && cuIpcOpenMemHandle(&other, handle, 0) == 1);
    handle.bytes[0] ^= 1;
    CHECK(cuIpcOpenMemHandle(&other, handle, 1) == 400 && cuIpcCloseMemHandle(at) == 1);
    OK(cuMemsetD8(at, 1, 5000));
    OK(cuMemcpyDtoH(bytes, at + 4998, 2));
    CHECK(bytes[0] == 1 && bytes[1] == 1);
}

static void *thread(void *context) {
    F(R, cuCtxSetCurrent, 4000, H);
    F(R, cuMemAlloc, 3020, Ptr *, size_t);
    F(R, cuMemFree, 3020, Ptr);
    F(R, cuCtxGetCurrent, 4000, H *);
    F(R, cuStreamSynchronize, 2000, H);
    H mine = (H)1;
    OK(cuCtxGetCurrent(&mine));
    CHECK(!mine);
    Ptr p;
    CHECK(cuMemAlloc(&p, 4096) == 201);
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 500; i++) {
        OK(cuMemAlloc(&p, 4096 + 4096 * (i % 3)));
        OK(cuStreamSynchronize((H)2));
        OK(cuMemFree(p));
    }
    return 0;
}

/* Threads have contexts of their own, and calls of several threads keep their order. */
static void threads(void) {
    H context = start();
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, thread, context);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
}

/* A forked child has no device; its parent keeps it. */
static void forks(void) {
    start();
    F(R, cuMemGetInfo, 3020, size_t *, size_t *);
    F(R, cuInit, 2000, unsigned);
    size_t a, b;
    pid_t child = fork();
    if (!child) _exit(cuMemGetInfo(&a, &b) == 3 && cuInit(0) == 3 ? 0 : 1);
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(cuMemGetInfo(&a, &b));
}

/* The configuration is wrong: there is no device. */
static void refused(void) {
    F(R, cuInit, 2000, unsigned);
    CHECK(cuInit(0) == 100);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    get_proc = (GetProc)dlsym(library, "cuGetProcAddress_v2");
    CHECK(get_proc);
    struct { const char *name; void (*run)(void); } cases[] = {
        {"devices", devices}, {"proc_address", proc_address}, {"launches", launches}, {"cooperative", cooperative}, {"killed", killed}, {"contexts", contexts},
        {"copies", copies}, {"ranges", ranges}, {"pointers", pointers}, {"pools", pools}, {"mappings", mappings},
        {"streams", streams}, {"exports", exports}, {"threads", threads}, {"forks", forks}, {"refused", refused},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[2])) { cases[i].run(); return 0; }
    fprintf(stderr, "no case %s\n", argv[2]);
    return 1;
}
