/* A driver that does nothing but say what it was asked: stands in for libcuda.so.1, so that a test sees exactly which driver
 * calls a runtime call becomes. Two devices; managed and host addresses are told by their top digit (0x5..., 0x6...). */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static char text[1 << 16];
static size_t used;

static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    used += (size_t)vsnprintf(text + used, sizeof text - used, format, args);
    va_end(args);
    used += (size_t)snprintf(text + used, sizeof text - used, "; ");
}

/* What was asked since the last time, as "call; call; ". */
const char *fake_said(void) {
    static char last[sizeof text];
    memcpy(last, text, used + 1);
    text[used = 0] = 0;
    return last;
}

static int failure;
/* The next launch returns this. */
void fake_fail(int status) { failure = status; }

static __thread uintptr_t current;

static int init(unsigned flags) { say("init %u", flags); return 0; }
static int driver_version(int *out) { *out = 13020; return 0; }
static int count(int *out) { *out = 2; return 0; }
static int name(char *out, int len, int device) { snprintf(out, (size_t)len, "fake %d", device); return 0; }
static int uuid(unsigned char *out, int device) { memset(out, 0xa0 + device, 16); return 0; }
static int total(size_t *out, int device) { (void)device; *out = (size_t)5 << 30; return 0; }
static int attribute(int *out, int which, int device) {
    if (device < 0 || device > 1) return 101;
    if (which > 140) return 1; /* a driver too old for it */
    *out = 1000 + which;
    return 0;
}
static int retain(uintptr_t *out, int device) { say("retain %d", device); *out = 0xc0 + (uintptr_t)device; return 0; }
static int release_context(int device) { say("release %d", device); return 0; }
static int reset(int device) { say("reset %d", device); return 0; }
static int get_current(uintptr_t *out) { *out = current; return 0; }
static int set_current(uintptr_t context) { say("current %#zx", (size_t)context); current = context; return 0; }
static int get_device(int *out) {
    if (!current) return 201;
    *out = (int)(current - 0xc0);
    return 0;
}
static int synchronize(void) { say("synchronize"); return 0; }

static int alloc_async(uintptr_t *out, size_t bytes, uintptr_t stream) {
    say("alloc_async %zu on %#zx", bytes, (size_t)stream);
    if (bytes > (size_t)1 << 40) return 2;
    *out = 0x7000;
    return 0;
}
static int alloc_from_pool(uintptr_t *out, size_t bytes, uintptr_t pool, uintptr_t stream) {
    say("from pool %#zx", (size_t)pool);
    return alloc_async(out, bytes, stream);
}
static int free_async(uintptr_t at, uintptr_t stream) { say("free_async %#zx on %#zx", (size_t)at, (size_t)stream); return 0; }
static int default_pool(uintptr_t *out, int device) { *out = 0xb0 + (uintptr_t)device; return 0; }
static int set_pool_attribute(uintptr_t pool, int which, uint64_t *value) {
    say("pool %#zx: %d = %zu", (size_t)pool, which, (size_t)*value);
    return 0;
}
static int trim(uintptr_t pool, size_t keep) { say("trim %#zx to %zu", (size_t)pool, keep); return 0; }

static int alloc(uintptr_t *out, size_t bytes) {
    say("alloc %zu", bytes);
    if (bytes > (size_t)1 << 40) return 2;
    *out = 0x7000;
    return 0;
}
static int release(uintptr_t at) { say("free %#zx", (size_t)at); return 0; }
static int pitch(uintptr_t *out, size_t *row, size_t width, size_t height, unsigned element) {
    say("pitch %zu %zu %u", width, height, element);
    *out = 0x7000;
    *row = 512;
    return 0;
}
static int pointer(unsigned n, const int *which, void **out, uintptr_t at) {
    unsigned kind = at >> 12;
    for (unsigned i = 0; i < n; i++)
        switch (which[i]) {
        case 2: *(int *)out[i] = kind == 7 || kind == 5 ? 2 : kind == 6 ? 1 : 0; break;
        case 3: *(uintptr_t *)out[i] = kind >= 5 ? at : 0; break;
        case 4: *(uintptr_t *)out[i] = kind == 5 || kind == 6 ? at : 0; break;
        case 8: *(unsigned char *)out[i] = kind == 5; break;
        case 9: *(int *)out[i] = kind >= 5 ? 1 : 77; break;
        default: return 1;
        }
    return 0;
}

static int htod(uintptr_t dst, uintptr_t src, size_t bytes) { say("htod %#zx %#zx %zu", dst, src, bytes); return 0; }
static int any(uintptr_t dst, uintptr_t src, size_t bytes) { say("any %#zx %#zx %zu", dst, src, bytes); return 0; }
static int dtoh_async(uintptr_t dst, uintptr_t src, size_t bytes, uintptr_t stream) {
    say("dtoh_async %#zx %#zx %zu on %#zx", dst, src, bytes, stream);
    return 0;
}
static int any_async(uintptr_t dst, uintptr_t src, size_t bytes, uintptr_t stream) {
    say("any_async %#zx %#zx %zu on %#zx", dst, src, bytes, stream);
    return 0;
}
static int peer(uintptr_t dst, uintptr_t to, uintptr_t src, uintptr_t from, size_t bytes, uintptr_t stream) {
    say("peer %#zx@%#zx %#zx@%#zx %zu on %#zx", dst, to, src, from, bytes, stream);
    return 0;
}
struct side { size_t x, y; int kind; uintptr_t host, device, array; size_t pitch; };
struct rectangle { struct side src, dst; size_t width, height; };
static int rectangle(const struct rectangle *r, uintptr_t stream) {
    say("rectangle %d:%#zx/%zu to %d:%#zx/%zu, %zu x %zu on %#zx", r->src.kind, r->src.host + r->src.device, r->src.pitch,
        r->dst.kind, r->dst.host + r->dst.device, r->dst.pitch, r->width, r->height, stream);
    return 0;
}
static int set8(uintptr_t at, unsigned char value, size_t bytes, uintptr_t stream) {
    say("set %#zx %u %zu on %#zx", at, value, bytes, stream);
    return 0;
}

struct location { int kind, id; };
static int prefetch(uintptr_t at, size_t bytes, struct location to, unsigned flags, uintptr_t stream) {
    say("prefetch %#zx %zu {%d,%d} %u on %#zx", at, bytes, to.kind, to.id, flags, stream);
    return 0;
}
static int advise(uintptr_t at, size_t bytes, int advice, struct location to) {
    say("advise %#zx %zu %d {%d,%d}", at, bytes, advice, to.kind, to.id);
    return 0;
}

static int capturing(uintptr_t stream, int *out) { (void)stream; *out = 0; return 0; }
static int capture_info(uintptr_t stream, int *status, uint64_t *id, void *graph, void *after, void *edges, void *n) {
    say("info %#zx: %d %d %d %d", (size_t)stream, !!graph, !!after, !!edges, !!n);
    *status = 1;
    if (id) *id = 7;
    return 0;
}
static int come_after(uintptr_t stream, void *after, void *edges, size_t n, unsigned flags) {
    say("after %#zx: %#zx %#zx %zu %u", (size_t)stream, (size_t)after, (size_t)edges, n, flags);
    return 0;
}
static int before(uintptr_t node, void *list, void *edges, size_t *n) {
    say("before %#zx: %#zx %#zx %d", (size_t)node, (size_t)list, (size_t)edges, !!n);
    return 0;
}
static int instantiate(uintptr_t *exec, uintptr_t graph, uint64_t flags) {
    say("instantiate %#zx %zu", (size_t)graph, (size_t)flags);
    *exec = 0xe0;
    return 0;
}
static int launch_graph(uintptr_t exec, uintptr_t stream) {
    say("graph %#zx %#zx", (size_t)exec, (size_t)stream);
    return 0;
}
static int stream_query(uintptr_t stream) { (void)stream; return 600; }
static int record(uintptr_t event, uintptr_t stream) { say("record %#zx on %#zx", event, stream); return 0; }

static int load(uintptr_t *out, const char *image, void *a, void *b, unsigned jit, int *options, uintptr_t *values, unsigned n) {
    (void)a, (void)b;
    say("load %s jit %u options %u %d=%zu", image, jit, n, options[0], (size_t)values[0]);
    *out = 0x11b;
    return 0;
}
static int unload(uintptr_t library) { say("unload %#zx", (size_t)library); return 0; }
static int get_kernel(uintptr_t *out, uintptr_t library, const char *which) {
    say("kernel %s", which);
    if (library != 0x11b || which[0] != '_') return 500;
    *out = 0xf00 + (uintptr_t)which[1];
    return 0;
}
static int get_function(uintptr_t *out, uintptr_t kernel) { *out = kernel + 0x10000; return 0; }
static int kernel_attribute(int *out, int which, uintptr_t kernel, int device) {
    (void)kernel;
    *out = 100 * device + which;
    return 0;
}
static int param(uintptr_t kernel, size_t index, size_t *offset, size_t *size) {
    if (index > 1) return 1;
    *offset = 8 * index;
    *size = kernel == 0xf00 + 'a' ? 8 : 4;
    return 0;
}

static int launch(uintptr_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                  uintptr_t stream, void **args, void **extra) {
    say("launch %#zx <%u,%u,%u|%u,%u,%u|%u> on %#zx args %d extra %d", f, gx, gy, gz, bx, by, bz, shared, stream,
        args ? *(int *)args[0] : -1, extra != NULL);
    int status = failure;
    failure = 0;
    return status;
}
struct config { unsigned gx, gy, gz, bx, by, bz, shared; uintptr_t stream; void *attributes; unsigned count; };
static int launch_ex(const struct config *c, uintptr_t f, void **args, void **extra) {
    say("launch_ex %#zx <%u,%u,%u|%u,%u,%u|%u> on %#zx args %d extra %d attributes %#zx/%u", f, c->gx, c->gy, c->gz, c->bx, c->by,
        c->bz, c->shared, c->stream, *(int *)args[0], extra != NULL, (uintptr_t)c->attributes, c->count);
    return 0;
}

static int get_proc_address(const char *symbol, void **out, int version, uint64_t flags, int *reason);

/* The first door only ever gives the second one away: a client that keeps using it gets nothing. */
int cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *reason) {
    (void)version, (void)flags;
    *out = NULL;
    *reason = 1;
    if (strcmp(symbol, "cuGetProcAddress") != 0) return 500;
    *out = (void *)get_proc_address;
    *reason = 0;
    return 0;
}

static int get_proc_address(const char *symbol, void **out, int version, uint64_t flags, int *reason) {
    static const struct { const char *name; int version; void *function; } table[] = {
        {"cuInit", 2000, (void *)init},
        {"cuDriverGetVersion", 2020, (void *)driver_version},
        {"cuDeviceGetCount", 2000, (void *)count},
        {"cuDeviceGetName", 2000, (void *)name},
        {"cuDeviceGetUuid", 9020, (void *)uuid},
        {"cuDeviceTotalMem", 3020, (void *)total},
        {"cuDeviceGetAttribute", 2000, (void *)attribute},
        {"cuDevicePrimaryCtxRetain", 7000, (void *)retain},
        {"cuDevicePrimaryCtxRelease", 7000, (void *)release_context},
        {"cuDevicePrimaryCtxReset", 7000, (void *)reset},
        {"cuCtxGetCurrent", 4000, (void *)get_current},
        {"cuCtxSetCurrent", 4000, (void *)set_current},
        {"cuCtxGetDevice", 2000, (void *)get_device},
        {"cuCtxSynchronize", 2000, (void *)synchronize},
        {"cuMemAlloc", 3020, (void *)alloc},
        {"cuMemFree", 3020, (void *)release},
        {"cuMemAllocAsync", 11020, (void *)alloc_async},
        {"cuMemAllocFromPoolAsync", 11020, (void *)alloc_from_pool},
        {"cuMemFreeAsync", 11020, (void *)free_async},
        {"cuDeviceGetDefaultMemPool", 11020, (void *)default_pool},
        {"cuMemPoolSetAttribute", 11020, (void *)set_pool_attribute},
        {"cuMemPoolTrimTo", 11020, (void *)trim},
        {"cuMemAllocPitch", 3020, (void *)pitch},
        {"cuPointerGetAttributes", 7000, (void *)pointer},
        {"cuMemcpyHtoD", 3020, (void *)htod},
        {"cuMemcpy", 4000, (void *)any},
        {"cuMemcpyDtoHAsync", 3020, (void *)dtoh_async},
        {"cuMemcpyAsync", 4000, (void *)any_async},
        {"cuMemcpyPeerAsync", 4000, (void *)peer},
        {"cuMemcpy2DAsync", 3020, (void *)rectangle},
        {"cuMemsetD8Async", 3020, (void *)set8},
        {"cuMemPrefetchAsync", 12020, (void *)prefetch},
        {"cuMemAdvise", 12020, (void *)advise},
        {"cuStreamIsCapturing", 10000, (void *)capturing},
        {"cuStreamGetCaptureInfo", 12030, (void *)capture_info},
        {"cuStreamUpdateCaptureDependencies", 12030, (void *)come_after},
        {"cuGraphNodeGetDependencies", 12030, (void *)before},
        {"cuGraphInstantiateWithFlags", 11040, (void *)instantiate},
        {"cuGraphLaunch", 10000, (void *)launch_graph},
        {"cuStreamQuery", 2000, (void *)stream_query},
        {"cuEventRecord", 2000, (void *)record},
        {"cuLibraryLoadData", 12000, (void *)load},
        {"cuLibraryUnload", 12000, (void *)unload},
        {"cuLibraryGetKernel", 12000, (void *)get_kernel},
        {"cuKernelGetFunction", 12000, (void *)get_function},
        {"cuKernelGetAttribute", 12000, (void *)kernel_attribute},
        {"cuKernelGetParamInfo", 12040, (void *)param},
        {"cuLaunchKernel", 4000, (void *)launch},
        {"cuLaunchKernelEx", 11060, (void *)launch_ex},
    };
    (void)flags;
    *out = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, symbol) == 0) {
            if (reason) *reason = version < table[i].version ? 2 : 0;
            if (version < table[i].version) return 0;
            *out = table[i].function;
            return 0;
        }
    if (reason) *reason = 1;
    return 500;
}
