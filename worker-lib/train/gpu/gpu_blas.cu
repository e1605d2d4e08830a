/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/gpu/gpu_blas.h"

#include <dlfcn.h>
#include <stdlib.h>

#ifdef CRUN_EMULATED
const struct blas_calls *blas_open(struct err *)
{
    static const struct blas_calls calls = { cublasCreate_v2, cublasDestroy_v2,
                                             cublasSetStream_v2, cublasSetWorkspace_v2,
                                             cublasGemmEx };

    return &calls;
}
#else
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
#define LIBRARY "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

const struct blas_calls *blas_open(struct err *e)
{
    static struct blas_calls calls;
    static const char *const names[] = { "cublasCreate_v2", "cublasDestroy_v2",
                                         "cublasSetStream_v2", "cublasSetWorkspace_v2",
                                         "cublasGemmEx" };
    void **entry = (void **)&calls;
    const char *path = getenv("CRUN_CUBLAS");
    void *library = dlopen(path && *path ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        err_set(e, "cannot load cuBLAS: %s", dlerror());
        return NULL;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        entry[i] = dlsym(library, names[i]);
        if (!entry[i]) {
            err_set(e, "%s has no %s", LIBRARY, names[i]);
            return NULL;
        }
    }
    return &calls;
}
#endif
