// SPDX-License-Identifier: Apache-2.0
//! Slices as tensors.
use crate::error::{Error, Result, Status};
use crate::sys;
use std::os::raw::c_void;

/// Bits of a 16-bit floating-point number of IEEE 754.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// Bits of a bfloat16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// A type of elements.
///
/// # Safety
/// Every pattern of bits is a value of the type, which lies in memory as `DTYPE` says.
pub unsafe trait Element: Copy + 'static {
    const DTYPE: sys::ddp_dtype;
}

/// Elements that can be trained.
pub trait Float: Element {}

macro_rules! elements {
    ($($type:ty: $dtype:ident),*) => { $(unsafe impl Element for $type { const DTYPE: sys::ddp_dtype = sys::$dtype; })* };
}
elements!(f32: DDP_F32, f64: DDP_F64, F16: DDP_F16, Bf16: DDP_BF16, i32: DDP_I32, i64: DDP_I64, u8: DDP_U8);
impl Float for f32 {}
impl Float for f64 {}
impl Float for F16 {}
impl Float for Bf16 {}

pub(crate) fn describe<T: Element>(data: *const T, count: usize, shape: &[usize]) -> Result<sys::ddp_tensor> {
    if shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) != Some(count) {
        return Err(Error::new(Status::InvalidArgument, format!("{} elements do not have the shape {:?}", count, shape)));
    }
    let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
    let mut tensor = empty();
    crate::error::check(unsafe { sys::ddp_tensor_init(&mut tensor, data as *mut c_void, T::DTYPE, sizes.len() as i32, sizes.as_ptr()) })?;
    Ok(tensor)
}

pub(crate) fn of_slice<T: Element>(slice: &[T]) -> Result<sys::ddp_tensor> {
    describe(slice.as_ptr(), slice.len(), &[slice.len()])
}

/// Of one that is written.
pub(crate) fn of_mut<T: Element>(slice: &mut [T]) -> Result<sys::ddp_tensor> {
    let count = slice.len();
    describe(slice.as_mut_ptr(), count, &[count])
}

pub(crate) fn empty() -> sys::ddp_tensor {
    sys::ddp_tensor { data: std::ptr::null_mut(), dtype: 0, device: sys::DDP_CPU, device_index: 0, ndim: 0, shape: [0; 8] }
}

/// Address and number of elements of a tensor of the library's, if they have type T and lie in host memory.
pub(crate) fn elements<T: Element>(tensor: &sys::ddp_tensor) -> Result<(*mut T, usize)> {
    if tensor.dtype != T::DTYPE || tensor.device != sys::DDP_CPU {
        return Err(Error::new(Status::InvalidArgument, "the tensor has another element type, or lies on a GPU"));
    }
    let count = tensor.shape[..tensor.ndim as usize].iter().product::<i64>() as usize;
    let data = if count == 0 { std::ptr::NonNull::dangling().as_ptr() } else { tensor.data.cast() };
    Ok((data, count))
}
