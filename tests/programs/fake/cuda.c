// A cruel little libcuda.so.1: it counts every call, fails on request, and hands out addresses that nothing lies behind.
#define _GNU_SOURCE
#include "copies.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char name[48]; int calls, fail, end; void *jump; } table[512];

static int entry(const char *name) {
    int i = 0;
    while (table[i].name[0] && strcmp(table[i].name, name)) i++;
    strcpy(table[i].name, name);
    return i;
}
int fake_calls(const char *name) {
    pthread_mutex_lock(&lock);
    int n = table[entry(name)].calls;
    pthread_mutex_unlock(&lock);
    return n;
}
void fake_fail(const char *name, int status) { table[entry(name)].fail = status; }
void fake_jump(const char *name, void *jump) { table[entry(name)].jump = jump; }
void fake_end(const char *name) { table[entry(name)].end = 1; }
// Counts a call; a status other than 0 is what it must return at once.
int fake_enter(const char *name) {
    pthread_mutex_lock(&lock);
    int i = entry(name);
    table[i].calls++;
    int status = table[i].fail, end = table[i].end;
    void *jump = table[i].jump;
    table[i].fail = table[i].end = 0;
    table[i].jump = NULL;
    pthread_mutex_unlock(&lock);
    if (jump) longjmp(jump, 1);
    if (end) pthread_exit(NULL);
    return status;
}
#define ENTER do { int status_ = fake_enter(__func__); if (status_) return status_; } while (0)

static struct { uint64_t start, len; char kind; } live[65536];
static uint64_t next = 0x600000000000;
static uint64_t total_memory(void) {
    const char *mib = getenv("FAKE_MIB");
    return (uint64_t)(mib ? atoi(mib) : 1024) << 20;
}
static int take(uint64_t *out, size_t bytes, char kind) {
    if (bytes == 0 || bytes > (1ull << 40)) return bytes ? 2 : 1;
    pthread_mutex_lock(&lock);
    uint64_t align = kind == 'm' ? 2 << 20 : 512;
    next = (next + align - 1) / align * align;
    int i = 0;
    while (live[i].kind) i++;
    live[i].start = next, live[i].len = bytes, live[i].kind = kind;
    *out = next;
    next += bytes;
    pthread_mutex_unlock(&lock);
    return 0;
}
uint64_t fake_kind(const void *address) {
    for (int i = 0; i < 65536; i++)
        if (live[i].kind && live[i].start == (uint64_t)address) return live[i].kind;
    return 0;
}

int cuInit(unsigned flags) { (void)flags; ENTER; return 0; }
int cuCtxGetCurrent(void **out) { *out = (void *)0x1000; return 0; }
int cuCtxGetDevice(int *out) { *out = 0; return 0; }
int cuDeviceGet(int *out, int ordinal) { *out = ordinal; return ordinal ? 101 : 0; }
int cuDeviceGetCount(int *out) { *out = 1; return 0; }
int cuDeviceGetAttribute(int *out, int which, int device) {
    (void)device;
    *out = which == 89 ? getenv("FAKE_NO_CONCURRENT") == NULL : which == 18 ? getenv("FAKE_INTEGRATED") != NULL : 0;
    return 0;
}
int cuDeviceGetUuid_v2(void *out, int device) { memset(out, 0xab + device, 16); return 0; }
int cuDeviceTotalMem_v2(size_t *out, int device) { (void)device; ENTER; *out = total_memory(); return 0; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER;
    *total = total_memory();
    *free_bytes = *total / 2;
    return 0;
}
int cuMemAlloc_v2(uint64_t *out, size_t bytes) { ENTER; return take(out, bytes, 'd'); }
int cuMemAllocPitch_v2(uint64_t *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    ENTER;
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    return take(out, *pitch * height, 'd');
}
int cuMemAllocManaged(uint64_t *out, size_t bytes, unsigned flags) { ENTER; return flags == 1 ? take(out, bytes, 'm') : 1; }
int cuMemAllocAsync(uint64_t *out, size_t bytes, void *stream) { (void)stream; ENTER; return take(out, bytes, 'd'); }
int cuMemCreate(uint64_t *out, size_t bytes, void *prop, uint64_t flags) { (void)prop, (void)flags; ENTER; return take(out, bytes, 'd'); }
int cuMemFree_v2(uint64_t at) {
    ENTER;
    if (!at) return 0;
    pthread_mutex_lock(&lock);
    int found = 1;
    for (int i = 0; i < 65536 && found; i++)
        if (live[i].kind && live[i].start == at) live[i].kind = 0, found = 0;
    pthread_mutex_unlock(&lock);
    return found;
}
int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) { (void)at, (void)bytes, (void)flags; ENTER; return 0; }
int cuMemHostGetDevicePointer_v2(uint64_t *out, void *at, unsigned flags) { (void)flags; *out = (uint64_t)at; return 0; }
static uint64_t written_at, written;
int cuStreamWriteValue64_v2(void *stream, uint64_t at, uint64_t value, unsigned flags) {
    (void)stream, (void)flags;
    ENTER;
    written_at = at, written = value;
    *(volatile uint64_t *)at = value;
    return 0;
}
int cuStreamWriteValue64_v2_ptsz(void *stream, uint64_t at, uint64_t value, unsigned flags) {
    return cuStreamWriteValue64_v2(stream, at, value, flags);
}
static uint64_t waited_at, waited;
// The launch that waits, or the gate word it waits for: a gate that is closed would hold this program for ever.
int cuStreamWaitValue64_v2(void *stream, uint64_t at, uint64_t value, unsigned flags) {
    (void)stream;
    ENTER;
    waited_at = at, waited = value;
    return flags == 0 && *(volatile int64_t *)at >= (int64_t)value ? 0 : 1;
}
int cuStreamWaitValue64_v2_ptsz(void *stream, uint64_t at, uint64_t value, unsigned flags) {
    return cuStreamWaitValue64_v2(stream, at, value, flags);
}
uint64_t fake_wait(int word) { return word ? waited_at : waited; }
uint64_t fake_progress(int word) { return word ? written_at : written; }

#define DK void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params
// A kernel reads its arguments while it is being launched: all four here are 8 bytes.
static int run(void *f, void **params, void **extra) {
    volatile uint64_t sum = 0;
    if (f == (void *)0x77) sum = *(uint64_t *)params[0];
    else if (params) for (int i = 0; i < 4; i++) sum += *(uint64_t *)params[i];
    else if (extra) for (int i = 0; i < 4; i++) sum += ((uint64_t *)extra[1])[i];
    return 0;
}
#define UNUSED (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream
int cuLaunchKernel(DK, void **extra) { UNUSED; ENTER; return run(f, params, extra); }
int cuLaunchKernel_ptsz(DK, void **extra) { UNUSED; ENTER; return run(f, params, extra); }
int cuLaunchCooperativeKernel(DK) { UNUSED; ENTER; return run(f, params, NULL); }
int cuLaunchKernelEx(const driver_config *config, void *f, void **params, void **extra) { (void)config; ENTER; return run(f, params, extra); }
int cuGraphLaunch(void *exec, void *stream) { (void)exec, (void)stream; ENTER; return 0; }
static int capturing;
int cuStreamBeginCapture(void *stream) { (void)stream; ENTER; capturing = 1; return 0; }
int cuStreamBeginCapture_v2(void *stream, int mode) { (void)stream, (void)mode; ENTER; capturing = 1; return 0; }
int cuStreamEndCapture(void *stream, void **graph) {
    (void)stream;
    ENTER;
    if (!capturing) return 401;
    capturing = 0;
    *graph = (void *)0x77;
    return 0;
}
int cuStreamIsCapturing(void *stream, int *out) { (void)stream; ENTER; *out = capturing; return 0; }
int cuStreamIsCapturing_ptsz(void *stream, int *out) { (void)stream; ENTER; *out = capturing; return 0; }
static void *destroyed[16];
int cuStreamDestroy_v2(void *stream) {
    ENTER;
    for (int i = 0; i < 16; i++)
        if (!destroyed[i] || destroyed[i] == stream) return destroyed[i] = stream, 0;
    return 1;
}
void fake_create(void *stream) {
    for (int i = 0; i < 16; i++)
        if (destroyed[i] == stream) destroyed[i] = (void *)1;
}
// A question about a stream that is gone, or during a capture, ends the program, as CUDA may.
int cuStreamQuery(void *stream) {
    ENTER;
    for (int i = 0; i < 16; i++)
        if (destroyed[i] == stream) abort();
    if (capturing) abort();
    return 0;
}
int cuCtxCreate_v2(void **out, unsigned flags, int device) { (void)flags, (void)device; ENTER; return *out = &capturing, 0; }
int cuCtxCreate_v3(void **out, void *affinity, int count, unsigned flags, int device) { (void)affinity, (void)count, (void)flags, (void)device; ENTER; return *out = &capturing, 0; }
int cuCtxCreate_v4(void **out, void *parameters, unsigned flags, int device) { (void)parameters, (void)flags, (void)device; ENTER; return *out = &capturing, 0; }
int cuCtxFromGreenCtx(void **out, void *green) { (void)green; ENTER; return *out = &capturing, 0; }
int cuCtxDestroy_v2(void *context) { (void)context; ENTER; return 0; }
int cuModuleUnload(void *module) { (void)module; ENTER; return 0; }
int cuFuncGetName(const char **out, void *f) { ENTER; *out = f == (void *)0x51 ? "_Z3onev" : "_Z3twov"; return 0; }
int cuFuncGetParamInfo(void *f, size_t index, size_t *offset, size_t *size) {
    if (f == (void *)0x66) return 801;
    if (f == (void *)0x77) { // one structure by value
        *offset = 0, *size = 8800;
        return index > 0;
    }
    if (index >= 4) return 1;
    *offset = index * 8, *size = 8;
    return 0;
}
int cuKernelGetName(const char **out, void *k) { (void)k; ENTER; *out = "_Z5threev"; return 0; }
int cuKernelGetParamInfo(void *k, size_t index, size_t *offset, size_t *size) { return cuFuncGetParamInfo(k, index, offset, size); }
int cuIpcGetMemHandle(void *handle, uint64_t at) { (void)handle; ENTER; return fake_kind((void *)at) == 'm' ? 1 : 0; }

// Copies take whatever they are given.
#define DRIVER(name, twin) int name() { ENTER; return 0; } int name##twin() { ENTER; return 0; }
DRIVER_COPIES

// The variants this driver knows by (base name, version, per-thread).
static void *look(const char *name, int version, uint64_t flags) {
    char symbol[64];
    // What became an array of copies in CUDA 12.8 got its second form in 13.0.
    int own = version >= (strstr(name, "BatchAsync") ? 13000 : 3020), mine = flags & 2;
    const char *suffix[] = {"_v2_ptsz", "_v2_ptds", "_ptsz", "_ptds", "_v2", ""};
    void *self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY), *found = NULL;
    for (int i = 0; i < 6 && !found; i++) {
        if ((strstr(suffix[i], "_v2") && !own) || (strstr(suffix[i], "_pt") && !mine)) continue;
        strcat(strcpy(symbol, name), suffix[i]);
        if (!strcmp(symbol, "cuGetProcAddress_v2") && version < 12000) continue;
        // By its own versioned address, as a driver does: not through anybody's dlsym.
        found = dlvsym(self, symbol, "FAKE_1");
    }
    return found;
}
int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
    ENTER;
    *out = look(name, version, flags);
    return *out ? 0 : 500;
}
int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    ENTER;
    *out = look(name, version, flags);
    if (status) *status = *out ? 0 : 1;
    return *out ? 0 : 500;
}
