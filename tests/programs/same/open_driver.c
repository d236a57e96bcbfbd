// Opens the driver by dlopen, uses it by dlsym, and closes it, twice. Hard: the genuine functions come late and in local scope, and may be gone
// again, while addresses of them are kept.
#include "common.h"

typedef uint64_t device_ptr;

static void *get(void *driver, const char *name) {
    void *at = dlsym(driver, name);
    NEED(at);
    return at;
}
#define CALL(name, ...) ((int (*)())get(driver, #name))(__VA_ARGS__)

int main(void) {
    say("before: %d\n", dlsym(RTLD_DEFAULT, "cuMemcpyDtoH_v2") != NULL);
    say("not loaded: %d\n", dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY) == NULL);
    for (int i = 0; i < 2; i++) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context;
        NEED(driver);
        say("init %d\n", CALL(cuInit, 0));
        say("retain %d\n", CALL(cuDevicePrimaryCtxRetain, &context, 0));
        say("current %d\n", CALL(cuCtxSetCurrent, context));
        device_ptr at[3];
        uint32_t *host = malloc(4 * MIB);
        for (unsigned j = 0; j < 3; j++) {
            say("alloc %d\n", CALL(cuMemAlloc_v2, &at[j], (size_t)4 * MIB));
            say("set %d\n", CALL(cuMemsetD32_v2, at[j], 77 * i + j, (size_t)MIB));
        }
        for (int j = 0; j < 3; j++) {
            int copied = CALL(cuMemcpyDtoH_v2, host, at[j], (size_t)4 * MIB);
            say("copy %d %016" PRIx64 "\n", copied, digest(host, 4 * MIB));
            say("free %d\n", CALL(cuMemFree_v2, at[j]));
        }
        free(host);
        say("twice freed %d\n", CALL(cuMemFree_v2, at[0]));
        say("nothing of that name: %d\n", dlsym(driver, "cuNoSuchFunction") == NULL && dlerror() != NULL);
        say("release %d\n", CALL(cuDevicePrimaryCtxRelease_v2, 0));
        say("close %d\n", dlclose(driver));
    }
    return 0;
}
