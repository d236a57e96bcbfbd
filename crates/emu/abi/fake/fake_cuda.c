/* A driver that only remembers: for tests of the stand-in libraries without the emulated device.
 *
 * Answers what a client library asks of libcuda.so.1, takes marker images apart far enough to name functions and know
 * parameter sizes, and records each launch: kernel name, parameter bytes, grid, stream, and which launch function it came through.
 * Built by the tests with -Wl,-soname,libcuda.so.1, so that dlopen("libcuda.so.1") finds it once it is loaded.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LAUNCHES = 256, MAX_PARAMS = 4096, NOT_FOUND = 500, OUT_OF_MEMORY = 2 };

struct launch {
    char name[64];
    uint32_t bytes;
    uint32_t grid[3];
    uint32_t through_ex;
    uint64_t stream;
    unsigned char params[MAX_PARAMS];
};

struct function {
    char name[64];
    uint32_t bytes;
};

static struct launch launches[MAX_LAUNCHES];
static int launch_count;
static struct function functions[64];
static int function_count;
static int modules;
static int context_exists;
static int capability = 80;
static uint64_t allocated, next_address = 0x700000000000;
static uint64_t limit = UINT64_MAX;
static int asked_for_itself;

int fake_launches(void) { return launch_count; }
const struct launch *fake_launch(int i) { return &launches[i]; }
void fake_forget(void) { launch_count = 0; }
void fake_capability(int c) { capability = c; }
void fake_limit(uint64_t bytes) { limit = bytes; }
int fake_modules(void) { return modules; }
uint64_t fake_allocated(void) { return allocated; }
int fake_asked_for_itself(void) { return asked_for_itself; }

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuCtxGetCurrent(void **ctx) { *ctx = context_exists ? &context_exists : NULL; return 0; }
int cuCtxSetCurrent(void *ctx) { context_exists = ctx != NULL; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return context_exists ? 0 : 201; }
int cuDevicePrimaryCtxRetain(void **ctx, int device) { *ctx = &context_exists; return device == 0 ? 0 : 101; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    if (attribute != 75 && attribute != 76) return 1;
    *value = attribute == 75 ? capability / 10 : capability % 10;
    return 0;
}

int cuModuleLoadData(void **module, const void *image) {
    const unsigned char *p = image;
    if (memcmp(p, "\177DUMKRNL", 8) != 0) return 200;
    uint32_t count;
    memcpy(&count, p + 16, 4);
    p += 20;
    function_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t name_len, bytes;
        memcpy(&name_len, p, 2);
        memcpy(&bytes, p + 2, 2);
        struct function *f = &functions[function_count++];
        memset(f->name, 0, sizeof f->name);
        memcpy(f->name, p + 4, name_len);
        f->bytes = bytes;
        p += 4 + name_len;
    }
    *module = functions;
    modules++;
    return 0;
}

int cuModuleUnload(void *module) {
    if (module != functions) return 1;
    modules--;
    return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    if (module != functions) return 1;
    for (int i = 0; i < function_count; i++)
        if (strcmp(functions[i].name, name) == 0) { *function = &functions[i]; return 0; }
    return NOT_FOUND;
}

int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
    if (allocated + bytes > limit) return OUT_OF_MEMORY;
    allocated += bytes;
    *out = next_address;
    next_address += (bytes + 0x1fffff) & ~(uint64_t)0x1fffff;
    return 0;
}
int cuMemFree_v2(uint64_t at) { (void)at; return 0; }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    (void)from; (void)stream;
    memset(to, 0x42, bytes);
    return 0;
}
int cuStreamSynchronize(void *stream) { (void)stream; return 0; }

static int record(struct function *f, const uint32_t grid[3], void *stream, void **args, int through_ex) {
    if (launch_count == MAX_LAUNCHES) return 1;
    struct launch *l = &launches[launch_count++];
    memcpy(l->name, f->name, sizeof l->name);
    l->bytes = f->bytes;
    memcpy(l->grid, grid, sizeof l->grid);
    l->through_ex = through_ex;
    l->stream = (uint64_t)stream;
    memcpy(l->params, args[0], f->bytes);
    return 0;
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **args, void **extra) {
    (void)bx; (void)by; (void)bz; (void)shared; (void)extra;
    uint32_t grid[3] = {gx, gy, gz};
    return record(f, grid, stream, args, 0);
}

struct config {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
};

int cuLaunchKernelEx(const struct config *c, void *f, void **args, void **extra) {
    (void)extra;
    return record(f, c->grid, c->stream, args, 1);
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    (void)version; (void)flags;
    static const struct { const char *name; void *function; } table[] = {
        {"cuGetProcAddress", cuGetProcAddress_v2}, {"cuInit", cuInit}, {"cuCtxGetCurrent", cuCtxGetCurrent},
        {"cuCtxSetCurrent", cuCtxSetCurrent}, {"cuCtxGetDevice", cuCtxGetDevice},
        {"cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain}, {"cuDeviceGetAttribute", cuDeviceGetAttribute},
        {"cuModuleLoadData", cuModuleLoadData}, {"cuModuleUnload", cuModuleUnload}, {"cuModuleGetFunction", cuModuleGetFunction}, {"cuMemAlloc", cuMemAlloc_v2},
        {"cuMemFree", cuMemFree_v2}, {"cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2}, {"cuStreamSynchronize", cuStreamSynchronize},
        {"cuLaunchKernel", cuLaunchKernel}, {"cuLaunchKernelEx", cuLaunchKernelEx},
    };
    if (strcmp(name, "cuGetProcAddress") == 0) asked_for_itself++;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) { *out = table[i].function; if (status) *status = 0; return 0; }
    *out = NULL;
    if (status) *status = 1;
    return NOT_FOUND;
}

static char refused[64];
const char *fake_refused(void) { return refused; }
void deepumEmuRefused(const char *name) { snprintf(refused, sizeof refused, "%s", name); }
