# SPDX-License-Identifier: MIT
"""For Spack: spack repo add scripts/packaging/spack; spack install crun-launcher"""
from spack.package import *


class CrunLauncher(MakefilePackage):
    """torchrun in C: launches distributed training on one or many machines and keeps it alive."""

    license("MIT")
    # spack checksum adds the released files: their address, and a version with its sha256
    manual_download = True
    version("1.0.0", expand=True)

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python", type=("build", "run"))
    depends_on("libevent")
    depends_on("cjson")
    depends_on("zlib-api")
    depends_on("openssl")
    depends_on("xxhash", type="build")
    depends_on("libseccomp")
    conflicts("platform=darwin")
    conflicts("platform=windows")

    build_targets = ["CUDA=no", "all"]

    def edit(self, spec, prefix):
        pass

    @property
    def install_targets(self):
        # the container runtime of this name is another package, with a prefix of its own
        return ["CUDA=no", f"PREFIX={self.prefix}", "CRUN_ANYWAY=1", "install"]
