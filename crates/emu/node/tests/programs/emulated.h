/* What the programs here have in common: a check that says where it failed, and the emulated driver by name. */
#pragma once
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(x) do { if (!(x)) { printf("line %d: %s (errno %d)\n", __LINE__, #x, errno); exit(1); } } while (0)
#define MIB (1ul << 20)

/* What `dlopen` gave for it. */
static void *cuda;
static inline int cu_(const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    int (*f)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) = (int (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t))dlsym(cuda, name);
    if (!f) { printf("no %s\n", name); exit(1); }
    return f(a, b, c, d, e);
}
#define CU(name, a, b, c, d, e) \
    do { int r_ = cu_(#name, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e)); \
         if (r_) { printf("line %d: %s = %d\n", __LINE__, #name, r_); exit(1); } } while (0)
