// Stands for PyTorch's libc10: the genuine function adds up what it is told.
#include <stddef.h>
#include <stdint.h>
typedef struct { int8_t kind, index; } device;
static int64_t sum;
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *p, int64_t size, size_t a, size_t b, device d) {
    (void)p, (void)a, (void)b;
    sum += d.kind == 1 || d.index == -1 ? size : 1000000;
}
int64_t torch_sum(void) { return sum; }
