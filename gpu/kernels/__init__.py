"""Our own Triton kernels."""
