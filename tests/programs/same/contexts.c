// The primary context, retained, made current, pushed, popped and released, and contexts of the program's own, as far as there are any. Hard: our own calls
// need a context, and must not leave one.
#include "driver.h"

int main(void) {
    void *primary, *again, *current, *own = NULL;
    unsigned flags;
    int active, device = -1;
    NEED(cuInit(0) == 0);
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active) == 0);
    say("active before %d\n", active);
    NEED(cuDevicePrimaryCtxRetain(&primary, 0) == 0 && cuDevicePrimaryCtxRetain(&again, 0) == 0);
    say("the same %d\n", primary == again);
    NEED(cuCtxGetCurrent(&current) == 0);
    say("current %d\n", current != NULL);
    NEED(cuCtxPushCurrent_v2(primary) == 0);
    device_ptr at[3];
    char *host = malloc(4 * MIB);
    for (int i = 0; i < 3; i++) {
        NEED(cuMemAlloc_v2(&at[i], 4 * MIB) == 0 && cuMemsetD8_v2(at[i], (unsigned char)i, 4 * MIB) == 0);
        NEED(cuCtxGetDevice(&device) == 0 && cuCtxGetCurrent(&current) == 0);
        say("device %d, as pushed %d\n", device, current == primary);
    }
    NEED(cuCtxPopCurrent_v2(&current) == 0);
    say("popped it %d\n", current == primary);
    NEED(cuCtxGetCurrent(&current) == 0);
    say("current %d\n", current != NULL);
    say("without: alloc %d, set %d\n", cuMemAlloc_v2(&at[0], 4 * MIB), cuMemsetD8_v2(at[1], 9, 64));
    say("and free %d\n", cuMemFree_v2(at[2]));
    NEED(cuCtxSetCurrent(primary) == 0);
    for (int i = 0; i < 2; i++) {
        int copied = cuMemcpyDtoH_v2(host, at[i], 4 * MIB);
        say("copy %d %016" PRIx64 "\n", copied, copied ? 0 : digest(host, 4 * MIB));
    }
    int made = cuCtxCreate_v2(&own, 0, 0);
    say("own %d, there %d\n", made, own != NULL);
    NEED(cuCtxGetCurrent(&current) == 0);
    say("still %d\n", current == primary);
    for (int i = 0; i < 3; i++) say("free %d\n", cuMemFree_v2(at[i]));
    say("release %d\n", cuDevicePrimaryCtxRelease_v2(0));
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active) == 0);
    say("active %d\n", active);
    say("release %d\n", cuDevicePrimaryCtxRelease_v2(0));
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active) == 0);
    say("active %d\n", active);
    say("one too many %d\n", cuDevicePrimaryCtxRelease_v2(0));
    free(host);
    return 0;
}
