//! THC numeric kernels: transform, quantizer, lookup tables, packing.
