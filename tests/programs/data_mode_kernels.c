// The device side of data_mode.c, as nvcc would have left it in an object file: a fat binary, registered before main,
// and one host stub for each kernel. A GPU compiles the kernels' text and runs it; the emulated device takes their names and
// parameters from it and computes them itself, in data mode.
#include "data_mode.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define P(n) ".param .u64 p" #n
#define ENTRY(name, body)                                                                                             \
    ".visible .entry deepum_test_" name "(" P(0) ", " P(1) ", " P(2) ", " P(3) ", " P(4) ", " P(5) ")\n{\n"           \
    ".reg .pred %p;\n.reg .u32 %w<4>;\n.reg .u64 %i, %n, %step, %at, %x, %y, %k, %m, %inner;\n.reg .f32 %a, %b, %sum;\n" body "ret;\n}\n"
// `body` for every index below the parameter `count`, whatever the grid; `%at` is four times the index `%i`.
#define EACH(count, body)                                                                                             \
    "mov.u32 %w0, %ctaid.x;\nmov.u32 %w1, %ntid.x;\nmov.u32 %w2, %tid.x;\nmov.u32 %w3, %nctaid.x;\n"                  \
    "mul.wide.u32 %i, %w0, %w1;\ncvt.u64.u32 %x, %w2;\nadd.u64 %i, %i, %x;\nmul.wide.u32 %step, %w3, %w1;\n" count    \
    "NEXT:\nsetp.ge.u64 %p, %i, %n;\n@%p bra DONE;\nshl.b64 %at, %i, 2;\n" body                                       \
    "add.u64 %i, %i, %step;\nbra NEXT;\nDONE:\n"
#define COUNT(param) "ld.param.u64 %n, [" param "];\n"
#define NUMBER(reg, param) "ld.param.u64 %y, [" param "];\ncvt.u32.u64 %w0, %y;\nmov.b32 " reg ", %w0;\n"
#define LOAD(reg, param) "ld.param.u64 %x, [" param "];\nadd.u64 %x, %x, %at;\nld.f32 " reg ", [%x];\n"
#define STORE(param, reg) "ld.param.u64 %x, [" param "];\nadd.u64 %x, %x, %at;\nst.f32 [%x], " reg ";\n"
// Adds in the order of the indexes: what comes out is the same each time.
#define SUM_OF(count, body)                                                                                           \
    "mov.f32 %sum, 0f00000000;\nmov.u64 %k, 0;\nMORE:\nsetp.ge.u64 %p, %k, " count ";\n@%p bra ALL;\n" body           \
    "add.u64 %k, %k, 1;\nbra MORE;\nALL:\n"
#define PTX                                                                                                           \
    ".version 7.0\n.target sm_70\n.address_size 64\n"                                                                 \
    ENTRY("fill", EACH(COUNT("p1"), NUMBER("%a", "p2") "cvt.rn.f32.u64 %b, %i;\nadd.rn.f32 %a, %a, %b;\n" STORE("p0", "%a")))            \
    ENTRY("copy", EACH(COUNT("p2"), LOAD("%a", "p1") STORE("p0", "%a")))                                              \
    ENTRY("scale", EACH(COUNT("p1"), NUMBER("%a", "p2") LOAD("%b", "p0") "mul.rn.f32 %a, %a, %b;\nadd.rn.f32 %a, %a, 0f3F800000;\n" STORE("p0", "%a"))) \
    ENTRY("axpy", EACH(COUNT("p2"), NUMBER("%a", "p3") LOAD("%b", "p1") "mul.rn.f32 %b, %a, %b;\n" LOAD("%a", "p0") "add.rn.f32 %a, %a, %b;\n" STORE("p0", "%a"))) \
    ENTRY("sum", EACH("mov.u64 %n, 1;\n", "ld.param.u64 %m, [p2];\nld.param.u64 %x, [p1];\n"                          \
        SUM_OF("%m", "ld.f32 %a, [%x];\nadd.rn.f32 %sum, %sum, %a;\nadd.u64 %x, %x, 4;\n") STORE("p0", "%sum")))      \
    ENTRY("gather", EACH(COUNT("p3"), "ld.param.u64 %x, [p2];\nadd.u64 %x, %x, %at;\nld.u32 %w0, [%x];\n"             \
        "cvt.u64.u32 %y, %w0;\nld.param.u64 %m, [p4];\nrem.u64 %y, %y, %m;\nshl.b64 %y, %y, 2;\n"                     \
        "ld.param.u64 %x, [p1];\nadd.u64 %x, %x, %y;\nld.f32 %a, [%x];\n" STORE("p0", "%a")))                         \
    ENTRY("matmul", EACH("ld.param.u64 %m, [p3];\nld.param.u64 %n, [p4];\nmul.lo.u64 %n, %n, %m;\n",                  \
        "ld.param.u64 %m, [p4];\ndiv.u64 %x, %i, %m;\nrem.u64 %y, %i, %m;\nld.param.u64 %k, [p5];\nmul.lo.u64 %x, %x, %k;\n"            \
        "shl.b64 %x, %x, 2;\nshl.b64 %y, %y, 2;\nshl.b64 %m, %m, 2;\nld.param.u64 %k, [p1];\nadd.u64 %x, %x, %k;\n"   \
        "ld.param.u64 %k, [p2];\nadd.u64 %y, %y, %k;\nld.param.u64 %inner, [p5];\n"                                                            \
        SUM_OF("%inner", "ld.f32 %a, [%x];\nld.f32 %b, [%y];\nmul.rn.f32 %a, %a, %b;\nadd.rn.f32 %sum, %sum, %a;\nadd.u64 %x, %x, 4;\nadd.u64 %y, %y, %m;\n") \
        STORE("p0", "%sum")))

// A container with one uncompressed PTX entry for compute capability 7.0 (layout: crates/emu/device/src/fatbin/container.rs; `options` is where the
// place of the compiler's options is, which are none).
static const struct {
    uint32_t magic;
    uint16_t version, header;
    uint64_t size;
    struct {
        uint16_t kind, version;
        uint32_t header;
        uint64_t payload;
        uint32_t packed, options;
        uint16_t minor, major;
        uint32_t arch, name, name_length;
        uint64_t flags, zero, unpacked, options_at;
        char no_options[8];
    } entry;
    char text[(sizeof PTX + 7) / 8 * 8];
} fatbin __attribute__((section(".nv_fatbin"), aligned(8))) = {
    0xba55ed50, 1, 16, sizeof fatbin.entry + sizeof fatbin.text,
    {1, 0x101, sizeof fatbin.entry, sizeof fatbin.text, 0, 0x40, 0, 7, 70, 0, 0, 0x11, 0, 0, 0x48, ""}, PTX,
};
static const struct {
    int magic, version;
    const void *image;
    void *origin;
} wrapper __attribute__((section(".nvFatBinSegment"))) = {0x466243b1, 1, &fatbin, NULL};

typedef struct {
    unsigned x, y, z;
} dim3;
void **__cudaRegisterFatBinary(const void *);
void __cudaRegisterFatBinaryEnd(void **), __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const void *, char *, const char *, int, void *, void *, void *, void *, int *);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, stream_t);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, stream_t *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, stream_t);
int __cudaGetKernel(void **, const void *), __cudaLaunchKernel(void *, dim3, dim3, void **, size_t, stream_t);

enum { FILL, COPY, SCALE, AXPY, SUM, GATHER, MATMUL, KERNELS };
static char names[KERNELS][24] = {"deepum_test_fill", "deepum_test_copy", "deepum_test_scale", "deepum_test_axpy",
                                  "deepum_test_sum", "deepum_test_gather", "deepum_test_matmul"};
// A stub's address stands for its kernel; the name's own address does as well.
#define STUB(kernel) ((const void *)names[kernel])
const void *kernel_symbol(int kernel) { return STUB(kernel); }
static void **registered;

__attribute__((constructor)) static void before_main(void) {
    registered = __cudaRegisterFatBinary(&wrapper);
    for (int k = 0; k < KERNELS; k++)
        __cudaRegisterFunction(registered, STUB(k), names[k], names[k], -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(registered);
}
__attribute__((destructor)) static void after_main(void) { __cudaUnregisterFatBinary(registered); }

void check(int status, const char *file, int line, const char *call) {
    if (status == 0) return;
    fprintf(stderr, "%s:%d: %s is CUDA error %d\n", file, line, call, status);
    exit(1);
}

// `<<<grid, block, 0, stream>>>` as nvcc 12 and nvcc 13 write it, in turn.
static void launch(int kernel, uint64_t elements, stream_t stream, uint64_t p[6]) {
    static unsigned launches;
    dim3 grid = {(unsigned)((elements + 255) / 256), 1, 1}, block = {256, 1, 1};
    void *args[6] = {&p[0], &p[1], &p[2], &p[3], &p[4], &p[5]}, *handle;
    size_t shared;
    if (__cudaPushCallConfiguration(grid, block, 0, stream)) abort();
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    if (launches++ % 2 == 0) {
        OK(cudaLaunchKernel(STUB(kernel), grid, block, args, shared, stream));
    } else {
        OK(__cudaGetKernel(&handle, STUB(kernel)));
        OK(__cudaLaunchKernel(handle, grid, block, args, shared, stream));
    }
}

static uint64_t at(const float *p) { return (uint64_t)p; }
static uint64_t number(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
#define LAUNCH(kernel, elements, ...) launch(kernel, elements, stream, (uint64_t[6]){__VA_ARGS__})

void fill(float *out, uint64_t n, float value, stream_t stream) { LAUNCH(FILL, n, at(out), n, number(value)); }
void copy(float *out, const float *in, uint64_t n, stream_t stream) { LAUNCH(COPY, n, at(out), at(in), n); }
void scale(float *x, uint64_t n, float a, stream_t stream) { LAUNCH(SCALE, n, at(x), n, number(a)); }
void axpy(float *y, const float *x, uint64_t n, float a, stream_t stream) { LAUNCH(AXPY, n, at(y), at(x), n, number(a)); }
void sum(float *out, const float *x, uint64_t n, stream_t stream) { LAUNCH(SUM, n, at(out), at(x), n); }
void gather(float *out, const float *in, const float *index, uint64_t n, uint64_t m, stream_t stream) {
    LAUNCH(GATHER, n, at(out), at(in), at(index), n, m);
}
void matmul(float *c, const float *a, const float *b, uint64_t m, uint64_t n, uint64_t k, stream_t stream) {
    LAUNCH(MATMUL, m * n, at(c), at(a), at(b), m, n, k);
}
