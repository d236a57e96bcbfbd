// In front of the driver: fails the call that the variable NO_EXPORT names, as `FUNCTION NUMBER`, once.
#include "common.h"

static int fails(const char *function) {
    static int calls;
    const char *asked = getenv("NO_EXPORT");
    char name[40];
    int number;
    if (!asked || sscanf(asked, "%39s %d", name, &number) != 2 || strcmp(name, function)) return 0;
    if (++calls != number) return 0;
    calls = 0;
    unsetenv("NO_EXPORT");
    return 1;
}

// The driver's own, by the C library's own look-up: whoever stands in front of us would be asked by any other.
static void *next(const char *name) {
    void *(*look_up)(void *, const char *) = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!look_up) look_up = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return look_up(dlopen("libcuda.so.1", RTLD_NOW), name);
}

int cuMemCreate(uint64_t *out, size_t bytes, const void *properties, uint64_t flags) {
    int (*real)(uint64_t *, size_t, const void *, uint64_t) = next("cuMemCreate");
    return fails("cuMemCreate") ? 2 : real(out, bytes, properties, flags);
}

int cuMemExportToShareableHandle(void *out, uint64_t memory, int kind, uint64_t flags) {
    int (*real)(void *, uint64_t, int, uint64_t) = next("cuMemExportToShareableHandle");
    return fails("cuMemExportToShareableHandle") ? 800 : real(out, memory, kind, flags);
}

int cuMemAddressReserve(uint64_t *out, size_t bytes, size_t align, uint64_t wish, uint64_t flags) {
    int (*real)(uint64_t *, size_t, size_t, uint64_t, uint64_t) = next("cuMemAddressReserve");
    int (*give_back)(uint64_t, size_t) = next("cuMemAddressFree");
    // What is wished for is taken for the moment, so that others come.
    uint64_t taken = 0;
    if (fails("cuMemAddressReserve")) NEED(real(&taken, bytes, align, wish, flags) == 0);
    int status = real(out, bytes, align, wish, flags);
    if (taken) NEED(give_back(taken, bytes) == 0);
    return status;
}

int cuMemMap(uint64_t at, size_t bytes, size_t offset, uint64_t memory, uint64_t flags) {
    int (*real)(uint64_t, size_t, size_t, uint64_t, uint64_t) = next("cuMemMap");
    return fails("cuMemMap") ? 1 : real(at, bytes, offset, memory, flags);
}

int cuMemSetAccess(uint64_t at, size_t bytes, const void *access, size_t count) {
    int (*real)(uint64_t, size_t, const void *, size_t) = next("cuMemSetAccess");
    return fails("cuMemSetAccess") ? 1 : real(at, bytes, access, count);
}
