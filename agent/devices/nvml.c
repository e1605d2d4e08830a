/* SPDX-License-Identifier: MIT */
#include "agent/devices/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libnvidia-ml.so.1"

static const struct {
    const char *name;
    size_t at;
    bool optional;
} symbols[] = {
#define NEED(member, symbol)                                                           \
    {                                                                                  \
        symbol, offsetof(struct nvml, member), false                                   \
    }
#define MAY(member, symbol)                                                            \
    {                                                                                  \
        symbol, offsetof(struct nvml, member), true                                    \
    }
    NEED(init, "nvmlInit_v2"),
    NEED(shutdown, "nvmlShutdown"),
    NEED(count, "nvmlDeviceGetCount_v2"),
    NEED(device, "nvmlDeviceGetHandleByIndex_v2"),
    NEED(pci, "nvmlDeviceGetPciInfo_v3"),
    NEED(uuid, "nvmlDeviceGetUUID"),
    MAY(part_max, "nvmlDeviceGetMaxMigDeviceCount"),
    MAY(part, "nvmlDeviceGetMigDeviceHandleByIndex"),
    MAY(instance, "nvmlDeviceGetGpuInstanceId"),
    MAY(name, "nvmlDeviceGetName"),
    MAY(use, "nvmlDeviceGetUtilizationRates"),
    MAY(memory, "nvmlDeviceGetMemoryInfo"),
    MAY(temperature, "nvmlDeviceGetTemperature"),
    MAY(power, "nvmlDeviceGetPowerUsage"),
    MAY(slowed, "nvmlDeviceGetCurrentClocksThrottleReasons"),
    MAY(errors, "nvmlDeviceGetTotalEccErrors"),
    MAY(pages_pending, "nvmlDeviceGetRetiredPagesPendingStatus"),
    MAY(rows, "nvmlDeviceGetRemappedRows"),
    MAY(fields, "nvmlDeviceGetFieldValues"),
    MAY(mode, "nvmlDeviceGetComputeMode"),
    MAY(processes, "nvmlDeviceGetComputeRunningProcesses_v3"),
    MAY(events, "nvmlEventSetCreate"),
    MAY(register_events, "nvmlDeviceRegisterEvents"),
    MAY(wait, "nvmlEventSetWait_v2"),
#undef NEED
#undef MAY
};

static bool find_symbols(struct nvml *nvml)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
        void *found = dlsym(nvml->library, symbols[i].name);

        if (!found && !symbols[i].optional)
            return false;
        memcpy((char *)nvml + symbols[i].at, &found, sizeof(found));
    }
    return true;
}

bool nvml_may_exist(void)
{
    /* files of the driver, on Linux and in Windows' Linux */
    static const char *const traces[] = { "/dev/nvidiactl", "/proc/driver/nvidia",
                                          "/dev/dxg" };

    /* or it is loaded already; otherwise dlopen would search a hundred folders */
    if (dlsym(RTLD_DEFAULT, symbols[0].name))
        return true;
    for (size_t i = 0; i < sizeof(traces) / sizeof(*traces); i++)
        if (access(traces[i], F_OK) == 0)
            return true;
    return false;
}

bool nvml_open(struct nvml *nvml)
{
    memset(nvml, 0, sizeof(*nvml));
    nvml->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library && find_symbols(nvml) && nvml->init() == NVML_OK)
        return true;
    if (nvml->library)
        dlclose(nvml->library);
    return false;
}

void nvml_close(struct nvml *nvml)
{
    nvml->shutdown();
    dlclose(nvml->library);
}

char *nvml_address(const struct nvml *nvml, struct nvml_device *device, char *buf)
{
    struct nvml_pci pci;

    *buf = '\0';
    if (nvml->pci(device, &pci) == NVML_OK)
        snprintf(buf, 32, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    return buf;
}
