// Cooperative launches, and launches with attributes: cluster of one, programmatic serialisation, priority; some of which are refused. Hard: each has a
// signature of its own, and what is in front of it in its stream may break what its attribute promises.
#include "runtime.h"

enum { CLUSTER = 4, SERIAL = 6, PRIORITY = 8, COOPERATIVE = 2 };

int main(void) {
    float *at[3], value = 1;
    stream_t stream;
    OK(cudaStreamCreate(&stream));
    for (int i = 0; i < 3; i++) OK(cudaMalloc((void **)&at[i], 4 * MIB));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            uint64_t p[3] = {(uint64_t)at[i], MIB, 0};
            memcpy(&p[2], &value, 4), value += 0.25f;
            void *params[6] = {&p[0], &p[1], &p[2], &p[2], &p[2], &p[2]};
            const void *kernel = kernel_symbol(FILL_KERNEL);
            dim3 grid = {64, 1, 1}, block = {256, 1, 1};
            launch_attribute attributes[3] = {{.id = CLUSTER}, {.id = SERIAL}, {.id = PRIORITY}};
            for (int k = 0; k < 3; k++) attributes[0].value.numbers[k] = 1;
            attributes[1].value.number = 1;
            launch_config config = {grid, block, 0, stream, attributes, 0};
            say("cooperative %d\n", cudaLaunchCooperativeKernel(kernel, grid, block, params, 0, stream));
            scale(at[i], MIB, 0.5f, stream);
            for (config.count = 0; config.count <= 3; config.count++) say("%u attributes %d\n", config.count, cudaLaunchKernelExC(&config, kernel, params));
            attributes[0] = (launch_attribute){.id = COOPERATIVE, .value.number = 1};
            config.count = 1;
            say("cooperative by attribute %d\n", cudaLaunchKernelExC(&config, kernel, params));
            attributes[0].id = 12345;
            say("no such attribute %d\n", cudaLaunchKernelExC(&config, kernel, params));
            say("last %d\n", cudaGetLastError());
            grid.x = 1 << 20;
            say("too many to be there at once %d\n", cudaLaunchCooperativeKernel(kernel, grid, block, params, 0, stream));
            say("last %d\n", cudaGetLastError());
            axpy(at[i], at[(i + 1) % 3], round ? MIB : 64, 0.5f, stream);
        }
        for (int i = 0; i < 3; i++) {
            if (round == 0) fill(at[i], MIB, value, stream);
            say("%016" PRIx64 "\n", on_device(at[i], MIB));
        }
    }
    return 0;
}
