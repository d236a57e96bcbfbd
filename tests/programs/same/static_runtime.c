// Looks everything up as a runtime that is linked statically does: dlsym of cuGetProcAddress, and by that of itself and of all else. Hard: nothing of
// CUDA is linked, so the look-up is the only door.
#include "driver.h"

typedef int getter(const char *, void **, int, uint64_t, int *);
static getter *get;

static void *function(const char *name, int version) {
    void *at = NULL;
    int status = get(name, &at, version, 0, NULL);
    if (status) say("%s: %d\n", name, status);
    NEED(at);
    return at;
}
#define CALL(name, ...) ((int (*)())function(#name, 13000))(__VA_ARGS__)

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context, *module, *fill;
    NEED(driver);
    getter *first = (getter *)dlsym(driver, "cuGetProcAddress_v2");
    NEED(first && first("cuGetProcAddress", (void **)&get, 12000, 0, NULL) == 0 && get);
    NEED(CALL(cuInit, 0) == 0 && CALL(cuDevicePrimaryCtxRetain, &context, 0) == 0 && CALL(cuCtxSetCurrent, context) == 0);
    say("load %d\n", CALL(cuModuleLoadData, &module, FILL_TEXT));
    say("function %d\n", CALL(cuModuleGetFunction, &fill, module, "deepum_test_fill"));
    device_ptr at[3];
    float *host = malloc(4 * MIB), value = 3;
    for (int i = 0; i < 3; i++) {
        int made = CALL(cuMemAlloc, &at[i], (size_t)4 * MIB);
        uint64_t p[3] = {at[i], MIB, 0};
        memcpy(&p[2], &value, 4), value += 1;
        void *params[3] = {&p[0], &p[1], &p[2]};
        int launched = CALL(cuLaunchKernel, fill, 4096, 1, 1, 256, 1, 1, 0, NULL, params, NULL);
        say("alloc %d, launch %d\n", made, launched);
    }
    for (int i = 0; i < 3; i++) {
        int copied = CALL(cuMemcpyDtoH, host, at[i], (size_t)4 * MIB), freed = CALL(cuMemFree, at[i]);
        say("copy %d, free %d: %016" PRIx64 "\n", copied, freed, digest(host, 4 * MIB));
    }
    free(host);
    return 0;
}
