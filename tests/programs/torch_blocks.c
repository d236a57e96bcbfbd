// PyTorch's block notices reach PyTorch's own function, and blocks in managed memory are recorded.
#include "check.h"
#include "cuda.h"
typedef struct { int8_t kind, index; } device;
extern void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, device);
extern int64_t torch_sum(void);
int main(void) {
    void *p;
    device gpu = {1, 0}, cpu = {0, -1};
    EQUAL(cudaMalloc(&p, 8 << 20), 0);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(p, 512, 512, 8 << 20, gpu);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((char *)p + 512, 1024, 1536, 8 << 20, gpu);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(p, -512, 1024, 8 << 20, gpu);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(&p, 4096, 1024, 8 << 20, cpu);
    EQUAL(torch_sum(), 512 + 1024 - 512 + 4096);
    EQUAL(counter(PT_NOTICES), 3);
    return 0;
}
