/* Calls the stand-in runtime as a program does and compares what the driver was asked: `runtime 12|13`. Ends with "ok". */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *runtime;
static const char *(*said)(void);
static void (*fake_fail)(int);

static void *symbol(const char *name) {
    void *found = dlsym(runtime, name);
    if (!found) printf("no %s\n", name), exit(1);
    return found;
}
static void same_number(const char *what, long got, long want, int line) {
    if (got != want) printf("line %d: %s is %ld, want %ld\n", line, what, got, want), exit(1);
}
static void same_text(const char *what, const char *got, const char *want, int line) {
    if (strcmp(got, want) != 0) printf("line %d: %s: \"%s\", want \"%s\"\n", line, what, got, want), exit(1);
}
/* Results vary, so arguments do: an old-style type without prototype promotes as the ABI does for int, long and pointers. */
#define call(name, ...) ((int (*)())symbol(#name))(__VA_ARGS__)
#define IS(expression, want) same_number(#expression, (long)(expression), (long)(want), __LINE__)
#define SAID(want) same_text("driver", said(), want, __LINE__)
#define ADDRESS(n) ((void *)(uintptr_t)(n))

struct dim3 { unsigned x, y, z; };
struct location { int kind, id; };
struct extent { size_t width, height, depth; };
typedef int launch_t(const void *, struct dim3, struct dim3, void **, size_t, void *);

static char host_a, host_missing, host_variable;
static const struct { int magic, version; const char *image; void *origin; } wrapper = {0x466243b1, 1, "IMAGE", NULL};

static void before_anything(void) {
    void **image = ((void **(*)(const void *))symbol("__cudaRegisterFatBinary"))(&wrapper);
    call(__cudaRegisterFunction, image, &host_a, "_a", "_a", -1, NULL, NULL, NULL, NULL, NULL);
    call(__cudaRegisterFunction, image, &host_missing, "no", "no", -1, NULL, NULL, NULL, NULL, NULL);
    call(__cudaRegisterVar, image, &host_variable, "v", "v", 0, 64L, 0, 0);
    call(__cudaRegisterFatBinaryEnd, image);
    IS(call(cudaGetLastError), 0);
    SAID(""); /* registration and queries of errors reach no driver */
}

static void devices_and_contexts(int major) {
    int n = -1;
    IS(call(cudaRuntimeGetVersion, &n), 0), IS(n, major == 12 ? 12080 : 13020);
    SAID("");
    IS(call(cudaGetDeviceCount, &n), 0), IS(n, 2);
    IS(call(cudaGetDevice, &n), 0), IS(n, 0);
    SAID("init 0; "); /* and no context yet */
    IS(call(cudaSetDevice, 2), 101);
    IS(call(cudaSetDevice, -1), 101);
    SAID("");
    IS(call(cudaFree, NULL), 0);
    SAID("retain 0; current 0xc0; ");
    IS(call(cudaSetDevice, 1), 0), IS(call(cudaGetDevice, &n), 0), IS(n, 1);
    SAID("retain 1; current 0xc1; ");
    IS(call(cudaSetDevice, 0), 0);
    SAID("current 0xc0; "); /* retained once */
    IS(call(cudaDeviceReset), 0);
    SAID("current 0; reset 0; release 0; ");
    IS(call(cudaFree, NULL), 0);
    SAID("retain 0; current 0xc0; "); /* and again after a reset */
}

static void errors(void) {
    void *at = NULL;
    IS(call(cudaGetLastError), 101); /* of cudaSetDevice, above */
    IS(call(cudaGetLastError), 0);
    IS(call(cudaMalloc, &at, (size_t)1 << 41), 2);
    IS(call(cudaPeekAtLastError), 2);
    IS(call(cudaDeviceSynchronize), 0);
    IS(call(cudaGetLastError), 2);
    IS(call(cudaPeekAtLastError), 0);
    IS(call(cudaStreamQuery, NULL), 600), IS(call(cudaGetLastError), 600);
    IS(call(cudaGraphAddNode, NULL, NULL, NULL, NULL, 0L, NULL), 801), IS(call(cudaGetLastError), 801);
    IS(call(cudaMallocHost, &at, 64L), 801), IS(call(cudaGetLastError), 801); /* this driver has no cuMemHostAlloc */
    said();
    same_text("name", ((const char *(*)(int))symbol("cudaGetErrorName"))(2), "cudaErrorMemoryAllocation", __LINE__);
    same_text("text", ((const char *(*)(int))symbol("cudaGetErrorString"))(2), "out of memory", __LINE__);
}

static void memory(void) {
    void *at = ADDRESS(1);
    IS(call(cudaMalloc, &at, 0L), 0), IS(at, 0);
    SAID("");
    IS(call(cudaMalloc, &at, 100L), 0), IS(at, 0x7000), IS(call(cudaFree, at), 0);
    SAID("alloc 100; free 0x7000; ");
    struct { void *at; size_t pitch, width, height; } box;
    IS(((int (*)(void *, struct extent))symbol("cudaMalloc3D"))(&box, (struct extent){100, 3, 4}), 0);
    SAID("pitch 100 12 16; ");
    IS(box.pitch, 512), IS(box.width, 100), IS(box.height, 3);
}

static void pools(void) {
    void *at = NULL, *pool = NULL, *s = ADDRESS(0x55);
    uint64_t most = UINT64_MAX;
    IS(call(cudaMallocAsync, &at, 100L, s), 0), IS(at, 0x7000), IS(call(cudaFreeAsync, at, s), 0);
    SAID("alloc_async 100 on 0x55; free_async 0x7000 on 0x55; ");
    IS(call(cudaMallocAsync_ptsz, &at, 100L, NULL), 0), IS(call(cudaFreeAsync_ptsz, at, NULL), 0);
    SAID("alloc_async 100 on 0x2; free_async 0x7000 on 0x2; ");
    IS(call(cudaDeviceGetDefaultMemPool, &pool, 1), 0), IS(pool, 0xb1);
    IS(call(cudaMallocFromPoolAsync, &at, 8L, pool, s), 0);
    IS(call(cudaMemPoolSetAttribute, pool, 4, &most), 0), IS(call(cudaMemPoolTrimTo, pool, 5L), 0);
    SAID("from pool 0xb1; alloc_async 8 on 0x55; pool 0xb1: 4 = 18446744073709551615; trim 0xb1 to 5; ");
    IS(call(cudaMallocAsync, &at, (size_t)1 << 41, s), 2), IS(call(cudaGetLastError), 2);
    said();
}

static void pointers(int major) {
    struct { int kind, device; void *dev, *host; long reserved[8]; } got;
    static const struct { size_t at; int kind, device; size_t dev, host; } want[] = {
        {0x5040, 3, 1, 0x5040, 0x5040}, {0x6040, 1, 1, 0x6040, 0x6040}, {0x7040, 2, 1, 0x7040, 0}, {0x1040, 0, -2, 0, 0},
    };
    for (int i = 0; i < 4; i++) {
        memset(&got, 0xee, sizeof got);
        IS(call(cudaPointerGetAttributes, &got, ADDRESS(want[i].at)), 0);
        IS(got.kind, want[i].kind), IS(got.device, want[i].device), IS(got.dev, want[i].dev), IS(got.host, want[i].host);
        /* CUDA 12's structure ends here: what follows is the program's. */
        for (int w = 0; w < 8; w++) IS(got.reserved[w], major == 12 ? (long)0xeeeeeeeeeeeeeeee : 0);
    }
    SAID("");
}

static void copies(void) {
    void *a = ADDRESS(0x7000), *b = ADDRESS(0x1000), *s = ADDRESS(0x55);
    IS(call(cudaMemcpy, a, b, 8L, 1), 0);
    IS(call(cudaMemcpy, a, b, 8L, 4), 0);
    IS(call(cudaMemcpyAsync, b, a, 8L, 2, s), 0);
    SAID("htod 0x7000 0x1000 8; any 0x7000 0x1000 8; dtoh_async 0x1000 0x7000 8 on 0x55; ");
    IS(call(cudaMemcpyAsync, a, b, 8L, 4, NULL), 0);
    IS(call(cudaMemcpyAsync_ptsz, a, b, 8L, 4, NULL), 0);
    SAID("any_async 0x7000 0x1000 8 on 0; any_async 0x7000 0x1000 8 on 0x2; ");
    IS(call(cudaMemcpy, a, b, 8L, 5), 21);
    IS(call(cudaMemcpy, a, b, 0L, 1), 0);
    SAID("");
    IS(call(cudaMemcpyPeerAsync, a, 1, b, 0, 8L, s), 0);
    SAID("peer 0x7000@0xc1 0x1000@0xc0 8 on 0x55; ");
    IS(call(cudaMemcpy2DAsync, a, 512L, b, 40L, 32L, 7L, 1, s), 0);
    SAID("rectangle 1:0x1000/40 to 2:0x7000/512, 32 x 7 on 0x55; ");
    IS(call(cudaMemcpy2DAsync, a, 512L, b, 40L, 32L, 7L, 4, s), 0);
    SAID("rectangle 4:0x1000/40 to 4:0x7000/512, 32 x 7 on 0x55; ");
    IS(call(cudaMemcpy2DAsync, a, 512L, b, 31L, 32L, 7L, 4, s), 12);
    IS(call(cudaMemsetAsync, a, 0x1ff, 9L, s), 0);
    SAID("set 0x7000 255 9 on 0x55; ");
    IS(call(cudaGetLastError), 12);
}

/* The same name, two signatures: an int is {device}, -1 the host; CUDA 13 passes {kind, id}. */
static void advice(int major) {
    void *a = ADDRESS(0x5000), *s = ADDRESS(0x55);
    if (major == 12) {
        IS(((int (*)(void *, size_t, int, void *))symbol("cudaMemPrefetchAsync"))(a, 64, 1, s), 0);
        IS(((int (*)(void *, size_t, int, int))symbol("cudaMemAdvise"))(a, 64, 3, -1), 0);
        SAID("prefetch 0x5000 64 {1,1} 0 on 0x55; advise 0x5000 64 3 {2,0}; ");
    } else {
        struct location to = {1, 1}, host = {3, 2};
        IS(((int (*)(void *, size_t, struct location, unsigned, void *))symbol("cudaMemPrefetchAsync"))(a, 64, to, 0, s), 0);
        IS(((int (*)(void *, size_t, int, struct location))symbol("cudaMemAdvise"))(a, 64, 3, host), 0);
        SAID("prefetch 0x5000 64 {1,1} 0 on 0x55; advise 0x5000 64 3 {3,2}; ");
    }
}

static void launches(void) {
    int value = 42, n = -1;
    void *args[] = {&value}, *s = ADDRESS(0x55), *kernel = NULL, *function = NULL;
    struct dim3 g = {1, 2, 3}, b = {4, 5, 6};
    IS(((launch_t *)symbol("cudaLaunchKernel"))(&host_a, g, b, args, 7, s), 0);
    SAID("load IMAGE jit 0 options 1 1=1; kernel _a; launch 0xf61 <1,2,3|4,5,6|7> on 0x55 args 42 extra 0; ");
    IS(call(__cudaGetKernel, &kernel, &host_a), 0), IS(kernel, 0xf61);
    IS(((launch_t *)symbol("__cudaLaunchKernel"))(kernel, g, b, args, 7, s), 0);
    SAID("launch 0xf61 <1,2,3|4,5,6|7> on 0x55 args 42 extra 0; ");
    IS(((launch_t *)symbol("__cudaLaunchKernel_ptsz"))(kernel, g, b, NULL, 7, NULL), 0);
    SAID("launch 0xf61 <1,2,3|4,5,6|7> on 0x2 args -1 extra 0; ");
    /* a handle, or a function of it, where a host address is expected */
    IS(call(cudaGetFuncBySymbol, &function, &host_a), 0), IS(function, 0x10f61);
    IS(((launch_t *)symbol("cudaLaunchKernel"))(kernel, g, b, args, 0, s), 0);
    IS(((launch_t *)symbol("cudaLaunchKernel"))(function, g, b, args, 0, s), 0);
    SAID("launch 0xf61 <1,2,3|4,5,6|0> on 0x55 args 42 extra 0; launch 0xf61 <1,2,3|4,5,6|0> on 0x55 args 42 extra 0; ");
    struct { struct dim3 g, b; size_t shared; void *stream, *attributes; unsigned count; } config = {g, b, 7, s, ADDRESS(0x99), 2};
    IS(call(cudaLaunchKernelExC, &config, &host_a, args), 0);
    SAID("launch_ex 0xf61 <1,2,3|4,5,6|7> on 0x55 args 42 extra 0 attributes 0x99/2; ");

    IS(((launch_t *)symbol("cudaLaunchKernel"))(&host_missing, g, b, args, 0, s), 98);
    IS(((launch_t *)symbol("cudaLaunchKernel"))(&value, g, b, args, 0, s), 98);
    IS(((launch_t *)symbol("cudaLaunchKernel"))(&host_a, g, b, args, (size_t)1 << 32, s), 1);
    SAID("kernel no; ");
    fake_fail(1); /* the driver's invalid value: of a shape that is none, and of anything else */
    IS(((launch_t *)symbol("cudaLaunchKernel"))(&host_a, (struct dim3){1, 0, 1}, b, args, 0, s), 9);
    fake_fail(1);
    IS(((launch_t *)symbol("cudaLaunchKernel"))(&host_a, g, (struct dim3){32, 32, 2}, args, 0, s), 9);
    fake_fail(1);
    IS(((launch_t *)symbol("cudaLaunchKernel"))(&host_a, g, b, args, 0, s), 1);
    said();

    struct dim3 pg, pb;
    size_t shared;
    void *stream;
    IS(((unsigned (*)(struct dim3, struct dim3, size_t, void *))symbol("__cudaPushCallConfiguration"))(g, b, 11, s), 0);
    IS(call(__cudaPopCallConfiguration, &pg, &pb, &shared, &stream), 0);
    IS(pg.y, 2), IS(pb.z, 6), IS(shared, 11), IS(stream, 0x55);
    IS(call(__cudaPopCallConfiguration, &pg, &pb, &shared, &stream), 52);

    size_t offset, size;
    IS(call(cudaFuncGetParamInfo, &host_a, 1L, &offset, &size), 0), IS(offset, 8), IS(size, 8);
    IS(call(cudaFuncGetParamInfo, &host_a, 2L, &offset, &size), 1);
    struct { size_t shared, constant, local; int threads, registers, ptx, binary, cache, dynamic, carveout, rest[22]; } f;
    IS(call(cudaFuncGetAttributes, &f, &host_a), 0);
    IS(f.shared, 1), IS(f.local, 3), IS(f.threads, 0), IS(f.registers, 4), IS(f.dynamic, 8), IS(f.carveout, 9);
    IS(call(cudaStreamIsCapturing, NULL, &n), 0), IS(n, 0);
    said();
    call(cudaGetLastError);
}

/* Three functions changed their arguments under the same name. */
static void graphs(int major) {
    void *s = ADDRESS(0x55), *node = ADDRESS(0x66), *graph, *exec;
    const void *after, *edges;
    int status = -1;
    uint64_t id = 0;
    size_t n = 1;
    if (major == 12) {
        IS(call(cudaStreamGetCaptureInfo, s, &status, &id), 0);
        SAID("info 0x55: 0 0 0 0; ");
        IS(call(cudaStreamUpdateCaptureDependencies, s, node, 2L, 1), 0);
        SAID("after 0x55: 0x66 0 2 1; ");
        IS(call(cudaGraphNodeGetDependencies, node, NULL, &n), 0);
    } else {
        IS(call(cudaStreamGetCaptureInfo, s, &status, &id, &graph, &after, &edges, &n), 0);
        SAID("info 0x55: 1 1 1 1; ");
        IS(call(cudaStreamUpdateCaptureDependencies, s, node, NULL, 2L, 1), 0);
        SAID("after 0x55: 0x66 0 2 1; ");
        IS(call(cudaGraphNodeGetDependencies, node, NULL, NULL, &n), 0);
    }
    SAID("before 0x66: 0 0 1; ");
    IS(status, 1), IS(id, 7);
    IS(call(cudaStreamGetCaptureInfo_v2, s, &status, &id, &graph, &after, &n), 0);
    SAID("info 0x55: 1 1 0 1; ");
    IS(call(cudaStreamGetCaptureInfo_v3, s, &status, &id, &graph, &after, &edges, &n), 0);
    SAID("info 0x55: 1 1 1 1; ");
    IS(call(cudaGraphInstantiate, &exec, ADDRESS(0x99), 8L), 0), IS(exec, 0xe0);
    IS(call(cudaGraphInstantiateWithFlags, &exec, ADDRESS(0x99), 1L), 0);
    SAID("instantiate 0x99 8; instantiate 0x99 1; ");
    IS(call(cudaGraphLaunch, exec, NULL), 0), IS(call(cudaGraphLaunch_ptsz, exec, NULL), 0);
    SAID("graph 0xe0 0; graph 0xe0 0x2; ");
}

/* Offsets of a few fields on either side of what CUDA 13 dropped; attributes are 1000 + their number. */
static void properties(int major) {
    unsigned char p[1040];
    memset(p, 0xee, sizeof p);
    IS(call(cudaGetDeviceProperties, p, 1), 0);
    same_text("name", (char *)p, "fake 1", __LINE__);
    IS(p[256], 0xa1), IS(*(size_t *)(p + 288), (size_t)5 << 30), IS(*(int *)(p + 308), 1010);
    if (major == 12) {
        IS(*(int *)(p + 360), 1075), IS(*(int *)(p + 388), 1016);
        IS(p[728], 0xee); /* CUDA 11's structure: 728 bytes */
        IS(call(cudaGetDeviceProperties_v2, p, 1), 0);
        IS(*(int *)(p + 360), 1075), IS(*(int *)(p + 776), 1129), IS(p[1031], 0), IS(p[1032], 0xee);
    } else {
        IS(*(int *)(p + 360), 1075), IS(*(int *)(p + 384), 1016);
        IS(*(int *)(p + 776), 1140), IS(*(int *)(p + 780), 0); /* 143: this driver does not know it */
        IS(p[1007], 0), IS(p[1008], 0xee);
    }
    IS(call(cudaGetDeviceProperties, p, 2), 101);
    call(cudaGetLastError);
}

static void entry_points(void) {
    void *at = NULL;
    int why = -1;
    IS(call(cudaGetDriverEntryPointByVersion, "cuMemAlloc", &at, 3020, 0L, &why), 0), IS(at != NULL, 1), IS(why, 0);
    IS(call(cudaGetDriverEntryPointByVersion, "cuMemAlloc", &at, 2000, 0L, &why), 0), IS(at, 0), IS(why, 2);
    IS(call(cudaGetDriverEntryPoint, "cuNothing", &at, 0L, &why), 0), IS(at, 0), IS(why, 1);
    IS(call(cudaGetDriverEntryPoint, "cuNothing", &at, 0L, NULL), 500);
    call(cudaGetLastError);
}

/* Last: an error that destroys the context stays. */
static void sticky(void) {
    int value = 0;
    void *args[] = {&value};
    struct dim3 one = {1, 1, 1};
    fake_fail(701); /* too many resources: only this launch */
    IS(((launch_t *)symbol("cudaLaunchKernel"))(&host_a, one, one, args, 0, NULL), 701);
    IS(call(cudaGetLastError), 701), IS(call(cudaGetLastError), 0);
    fake_fail(700);
    IS(((launch_t *)symbol("cudaLaunchKernel"))(&host_a, one, one, args, 0, NULL), 700);
    IS(call(cudaGetLastError), 700), IS(call(cudaGetLastError), 700), IS(call(cudaPeekAtLastError), 700);
}

int main(int argc, char **argv) {
    int major = argc > 1 ? atoi(argv[1]) : 0;
    runtime = dlopen(argv[2], RTLD_NOW);
    if (!runtime) return puts(dlerror()), 1;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) { /* no driver at all */
        int n = -1;
        IS(call(cudaDriverGetVersion, &n), 0), IS(n, 0);
        IS(call(cudaGetDeviceCount, &n), 35), IS(n, 0), IS(call(cudaGetLastError), 35);
        return puts("ok"), 0;
    }
    said = (const char *(*)(void))dlsym(driver, "fake_said");
    fake_fail = (void (*)(int))dlsym(driver, "fake_fail");
    if (!major) { /* a name of no known version */
        int n = -1;
        IS(call(cudaRuntimeGetVersion, &n), 35), IS(call(cudaGetDeviceCount, &n), 35);
        SAID("");
        return puts("ok"), 0;
    }
    before_anything();
    devices_and_contexts(major);
    errors();
    memory();
    pointers(major);
    copies();
    advice(major);
    pools();
    launches();
    graphs(major);
    properties(major);
    entry_points();
    sticky();
    return puts("ok"), 0;
}
