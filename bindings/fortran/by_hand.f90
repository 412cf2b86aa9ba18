! SPDX-License-Identifier: Apache-2.0
  ! A tensor over an array: `ddp_tensor_of(w)`. The array has the attribute `target`, lies without gaps, and stays where it is as
  ! long as the tensor is used. Fortran's first dimension is the fastest, so w(3, 4) is a tensor of shape [4, 3], as other
  ! languages see it in checkpoints.
  interface ddp_tensor_of
    module procedure tensor_of_f32, tensor_of_f64, tensor_of_i32, tensor_of_i64, tensor_of_c64, tensor_of_c128
  end interface

  ! An array over a tensor of the library's, such as a gradient: `call ddp_tensor_pointer(tensor, p)`, and p has the tensor's
  ! dimensions, the last of which is p's first. Of another type or number of dimensions: DDP_ERROR_INVALID_ARGUMENT.
  interface ddp_tensor_pointer
    module procedure pointer_f32_1, pointer_f32_2, pointer_f32_3, pointer_f32_4
    module procedure pointer_f64_1, pointer_f64_2, pointer_f64_3, pointer_f64_4
  end interface

  private :: address, finish, for_c, describe, fits, tensor_of_f32, tensor_of_f64, tensor_of_i32, tensor_of_i64, tensor_of_c64, &
             tensor_of_c128, pointer_f32_1, pointer_f32_2, pointer_f32_3, pointer_f32_4, pointer_f64_1, pointer_f64_2, &
             pointer_f64_3, pointer_f64_4

contains

  ! The bucket plan as text: one line per bucket with its size, way (in place, staged) and parameters.
  subroutine ddp_model_describe_plan(model, text, stat)
    type(ddp_model), intent(in) :: model
    character(:), allocatable, intent(out) :: text
    integer(c_int32_t), intent(out), optional :: stat
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(c_int64_t) :: needed
    integer(c_int32_t) :: answer
    interface
      function c_describe(model, buffer, capacity, needed) bind(c, name='ddp_model_describe_plan') result(answer)
        import
        type(c_ptr), value :: model, buffer
        integer(c_int64_t), value :: capacity
        integer(c_int64_t), intent(out) :: needed
        integer(c_int32_t) :: answer
      end function
    end interface
    answer = c_describe(model%handle, c_null_ptr, 0_c_int64_t, needed)
    if (answer == DDP_OK) then
      allocate (buffer(needed))
      answer = c_describe(model%handle, c_loc(buffer), size(buffer, kind=c_int64_t), needed)
      if (answer == DDP_OK) text = ddp_text(c_loc(buffer))
    end if
    call finish(answer, stat)
  end subroutine

  ! A text of C's, as callbacks get one; '' for NULL.
  function ddp_text(text) result(copy)
    type(c_ptr), intent(in) :: text
    character(:), allocatable :: copy
    character(kind=c_char), pointer :: letters(:)
    integer(c_size_t) :: i, length
    interface
      function c_strlen(text) bind(c, name='strlen') result(length)
        import
        type(c_ptr), value :: text
        integer(c_size_t) :: length
      end function
    end interface
    copy = ''
    if (.not. c_associated(text)) return
    length = c_strlen(text)
    call c_f_pointer(text, letters, [length])
    deallocate (copy)
    allocate (character(length) :: copy)
    do i = 1, length
      copy(i:i) = letters(i)
    end do
  end function

  ! A string for C: without the blanks that fill it up, with a NUL. Nothing for one that is not there.
  subroutine for_c(text, copy)
    character(*), intent(in), optional :: text
    character(kind=c_char), allocatable, intent(out) :: copy(:)
    integer :: i
    if (.not. present(text)) return
    allocate (copy(len_trim(text) + 1))
    do i = 1, len_trim(text)
      copy(i) = text(i:i)
    end do
    copy(size(copy)) = c_null_char
  end subroutine

  function address(given) result(found)
    type(c_ptr), intent(in), optional :: given
    type(c_ptr) :: found
    found = c_null_ptr
    if (present(given)) found = given
  end function

  ! What becomes of a status: the caller's `stat`, or, where it has none, the end of the program.
  subroutine finish(answer, stat)
    use, intrinsic :: iso_fortran_env, only: error_unit
    integer(c_int32_t), intent(in) :: answer
    integer(c_int32_t), intent(out), optional :: stat
    if (present(stat)) then
      stat = answer
    else if (answer /= DDP_OK) then
      write (error_unit, '(3a)') ddp_status_name(answer), ': ', ddp_last_error()
      error stop 1, quiet=.true.
    end if
  end subroutine

  function describe(data, dtype, sizes, contiguous) result(tensor)
    use, intrinsic :: iso_fortran_env, only: error_unit
    type(c_ptr), intent(in) :: data
    integer(c_int32_t), intent(in) :: dtype
    integer(c_int64_t), intent(in) :: sizes(:)
    logical, intent(in) :: contiguous
    type(ddp_tensor) :: tensor
    integer(c_int64_t) :: reversed(size(sizes))
    if (.not. contiguous) then
      write (error_unit, '(a)') 'ddp_tensor_of: the array has gaps: libddp would read what lies between its elements'
      error stop 1, quiet=.true.
    end if
    reversed = sizes(size(sizes):1:-1)
    call ddp_tensor_init(tensor, data, dtype, size(sizes, kind=c_int32_t), reversed)
  end function

  function tensor_of_f32(array) result(tensor)
    real(c_float), target, intent(in) :: array(..)
    type(ddp_tensor) :: tensor
    tensor = describe(c_loc(array), DDP_F32, shape(array, kind=c_int64_t), is_contiguous(array))
  end function

  function tensor_of_f64(array) result(tensor)
    real(c_double), target, intent(in) :: array(..)
    type(ddp_tensor) :: tensor
    tensor = describe(c_loc(array), DDP_F64, shape(array, kind=c_int64_t), is_contiguous(array))
  end function

  function tensor_of_i32(array) result(tensor)
    integer(c_int32_t), target, intent(in) :: array(..)
    type(ddp_tensor) :: tensor
    tensor = describe(c_loc(array), DDP_I32, shape(array, kind=c_int64_t), is_contiguous(array))
  end function

  function tensor_of_i64(array) result(tensor)
    integer(c_int64_t), target, intent(in) :: array(..)
    type(ddp_tensor) :: tensor
    tensor = describe(c_loc(array), DDP_I64, shape(array, kind=c_int64_t), is_contiguous(array))
  end function

  function tensor_of_c64(array) result(tensor)
    complex(c_float_complex), target, intent(in) :: array(..)
    type(ddp_tensor) :: tensor
    tensor = describe(c_loc(array), DDP_C64, shape(array, kind=c_int64_t), is_contiguous(array))
  end function

  function tensor_of_c128(array) result(tensor)
    complex(c_double_complex), target, intent(in) :: array(..)
    type(ddp_tensor) :: tensor
    tensor = describe(c_loc(array), DDP_C128, shape(array, kind=c_int64_t), is_contiguous(array))
  end function

  ! Is it a tensor of that type and number of dimensions, in host memory?
  function fits(tensor, dtype, ndim, stat) result(yes)
    use, intrinsic :: iso_fortran_env, only: error_unit
    type(ddp_tensor), intent(in) :: tensor
    integer(c_int32_t), intent(in) :: dtype, ndim
    integer(c_int32_t), intent(out), optional :: stat
    logical :: yes
    yes = tensor%dtype == dtype .and. tensor%ndim == ndim .and. tensor%device == DDP_CPU
    if (present(stat)) then
      stat = merge(DDP_OK, DDP_ERROR_INVALID_ARGUMENT, yes)
    else if (.not. yes) then
      write (error_unit, '(a)') 'ddp_tensor_pointer: the tensor has another type or number of dimensions, or lies on a GPU'
      error stop 1, quiet=.true.
    end if
  end function

  subroutine pointer_f32_1(tensor, p, stat)
    type(ddp_tensor), intent(in) :: tensor
    real(c_float), pointer, intent(out) :: p(:)
    integer(c_int32_t), intent(out), optional :: stat
    nullify (p)
    if (fits(tensor, DDP_F32, 1, stat)) call c_f_pointer(tensor%data, p, tensor%shape(1:1:-1))
  end subroutine

  subroutine pointer_f32_2(tensor, p, stat)
    type(ddp_tensor), intent(in) :: tensor
    real(c_float), pointer, intent(out) :: p(:, :)
    integer(c_int32_t), intent(out), optional :: stat
    nullify (p)
    if (fits(tensor, DDP_F32, 2, stat)) call c_f_pointer(tensor%data, p, tensor%shape(2:1:-1))
  end subroutine

  subroutine pointer_f32_3(tensor, p, stat)
    type(ddp_tensor), intent(in) :: tensor
    real(c_float), pointer, intent(out) :: p(:, :, :)
    integer(c_int32_t), intent(out), optional :: stat
    nullify (p)
    if (fits(tensor, DDP_F32, 3, stat)) call c_f_pointer(tensor%data, p, tensor%shape(3:1:-1))
  end subroutine

  subroutine pointer_f32_4(tensor, p, stat)
    type(ddp_tensor), intent(in) :: tensor
    real(c_float), pointer, intent(out) :: p(:, :, :, :)
    integer(c_int32_t), intent(out), optional :: stat
    nullify (p)
    if (fits(tensor, DDP_F32, 4, stat)) call c_f_pointer(tensor%data, p, tensor%shape(4:1:-1))
  end subroutine

  subroutine pointer_f64_1(tensor, p, stat)
    type(ddp_tensor), intent(in) :: tensor
    real(c_double), pointer, intent(out) :: p(:)
    integer(c_int32_t), intent(out), optional :: stat
    nullify (p)
    if (fits(tensor, DDP_F64, 1, stat)) call c_f_pointer(tensor%data, p, tensor%shape(1:1:-1))
  end subroutine

  subroutine pointer_f64_2(tensor, p, stat)
    type(ddp_tensor), intent(in) :: tensor
    real(c_double), pointer, intent(out) :: p(:, :)
    integer(c_int32_t), intent(out), optional :: stat
    nullify (p)
    if (fits(tensor, DDP_F64, 2, stat)) call c_f_pointer(tensor%data, p, tensor%shape(2:1:-1))
  end subroutine

  subroutine pointer_f64_3(tensor, p, stat)
    type(ddp_tensor), intent(in) :: tensor
    real(c_double), pointer, intent(out) :: p(:, :, :)
    integer(c_int32_t), intent(out), optional :: stat
    nullify (p)
    if (fits(tensor, DDP_F64, 3, stat)) call c_f_pointer(tensor%data, p, tensor%shape(3:1:-1))
  end subroutine

  subroutine pointer_f64_4(tensor, p, stat)
    type(ddp_tensor), intent(in) :: tensor
    real(c_double), pointer, intent(out) :: p(:, :, :, :)
    integer(c_int32_t), intent(out), optional :: stat
    nullify (p)
    if (fits(tensor, DDP_F64, 4, stat)) call c_f_pointer(tensor%data, p, tensor%shape(4:1:-1))
  end subroutine
