! SPDX-License-Identifier: Apache-2.0
! The program of tests/bindings/README.md in Fortran: the same bits as in C. No fused multiply-add (-ffp-contract=off), and loops in the
! order given: no matmul, no sum.
module network
  use ddp
  implicit none
  integer, parameter :: inputs = 8, hidden = 16, outputs = 4, samples = 96, batch = 8, epochs = 10
  integer, parameter :: f32 = c_float, f64 = c_double, i64 = c_int64_t
  real(f32), target :: w1(inputs, hidden), b1(hidden), w2(hidden, outputs), b2(outputs) ! row-major [16, 8] is w1(8, 16)
  real(f32), target :: w1_grad(inputs, hidden), w2_grad(hidden, outputs)
  real(f32), pointer :: b1_grad(:), b2_grad(:)
  real(f32) :: x(inputs, samples), t(outputs, samples)
contains
  real(f32) function next_number(state)
    integer(i64), intent(inout) :: state
    state = iand(state * 1664525_i64 + 1013904223_i64, int(z'ffffffff', i64))
    next_number = (real(ishft(state, -16), f32) - 32768) / 32768
  end function

  subroutine start(rank)
    integer, intent(in) :: rank
    integer(i64) :: state
    integer :: s, i, o
    state = 1
    do s = 1, samples
      do i = 1, inputs
        x(i, s) = next_number(state)
      end do
      do o = 1, outputs
        t(o, s) = next_number(state) * 0.5_f32
      end do
    end do
    state = 7 + rank
    do i = 1, hidden
      do o = 1, inputs
        w1(o, i) = next_number(state) * 0.5_f32
      end do
    end do
    do o = 1, outputs
      do i = 1, hidden
        w2(i, o) = next_number(state) * 0.5_f32
      end do
    end do
    b1 = 0
    b2 = 0
  end subroutine

  subroutine learn(s, scale, loss)
    integer(i64), intent(in) :: s
    real(f32), intent(in) :: scale
    real(f64), intent(out) :: loss
    real(f32) :: h(hidden), d(outputs), y, error, back
    integer :: i, j, o
    loss = 0
    do i = 1, hidden
      h(i) = b1(i)
      do j = 1, inputs
        h(i) = h(i) + w1(j, i) * x(j, s)
      end do
      if (h(i) < 0) h(i) = 0
    end do
    do o = 1, outputs
      y = b2(o)
      do i = 1, hidden
        y = y + w2(i, o) * h(i)
      end do
      error = y - t(o, s)
      loss = loss + real(error, f64) * real(error, f64)
      d(o) = error * scale
    end do
    do o = 1, outputs
      b2_grad(o) = b2_grad(o) + d(o)
      do i = 1, hidden
        w2_grad(i, o) = w2_grad(i, o) + d(o) * h(i)
      end do
    end do
    do i = 1, hidden
      back = 0
      do o = 1, outputs
        back = back + w2(i, o) * d(o)
      end do
      if (.not. h(i) > 0) back = 0
      b1_grad(i) = b1_grad(i) + back
      do j = 1, inputs
        w1_grad(j, i) = w1_grad(j, i) + back * x(j, s)
      end do
    end do
  end subroutine

  function lend_all(group) result(model)
    type(ddp_group), intent(in) :: group
    type(ddp_model) :: model
    type(ddp_model_options) :: options
    type(ddp_tensor) :: grad
    call ddp_model_options_init(options)
    options%first_bucket_bytes = 256
    options%bucket_bytes = 512
    call ddp_model_create(group, model, options)
    call ddp_model_add_parameter(model, 'w1', ddp_tensor_of(w1), ddp_tensor_of(w1_grad))
    call ddp_model_add_parameter(model, 'b1', ddp_tensor_of(b1))
    call ddp_model_add_parameter(model, 'w2', ddp_tensor_of(w2), ddp_tensor_of(w2_grad))
    call ddp_model_add_parameter(model, 'b2', ddp_tensor_of(b2))
    call ddp_model_commit(model)
    call ddp_model_get_grad(model, 1, grad)
    call ddp_tensor_pointer(grad, b1_grad)
    call ddp_model_get_grad(model, 3, grad)
    call ddp_tensor_pointer(grad, b2_grad)
  end function

  subroutine work(model, chosen, last_pass, loss)
    type(ddp_model), intent(in) :: model
    integer(i64), intent(in) :: chosen(:)
    integer(c_int32_t), intent(in) :: last_pass
    real(f64), intent(out) :: loss
    real(f64) :: one
    integer :: half, i, first, last
    loss = 0
    do half = 0, 1
      call ddp_model_begin_backward(model, merge(DDP_PASS_ACCUMULATE, last_pass, half == 0))
      first = merge(0, size(chosen) / 2, half == 0)
      last = merge(size(chosen) / 2, size(chosen), half == 0)
      do i = first + 1, last
        call learn(chosen(i) + 1, 1.0_f32 / real(size(chosen), f32), one)
        loss = loss + one
      end do
      do i = 3, 0, -1
        call ddp_model_mark_ready(model, i)
      end do
      call ddp_model_end_backward(model)
    end do
  end subroutine

  subroutine train(group, model, sgd, ema, sums)
    type(ddp_group), intent(in) :: group
    type(ddp_model), intent(in) :: model
    type(ddp_optimizer), intent(in) :: sgd
    type(ddp_ema), intent(in) :: ema
    real(f64), intent(out) :: sums(16)
    type(ddp_virtual_ranks) :: mine
    type(ddp_sampler) :: sampler
    integer(i64) :: share, epoch, first, count, chosen(batch)
    real(f64) :: norm, loss
    integer :: i
    call ddp_group_get_virtual_ranks(group, mine)
    call ddp_sampler_init(sampler)
    sampler%dataset_size = samples
    sampler%seed = 3
    sampler%size = mine%total
    call ddp_sampler_get_count(sampler, share)
    do epoch = 0, epochs - 1
      sums = 0
      do first = 0, share - 1, batch
        count = min(share - first, int(batch, i64))
        call ddp_model_zero_grad(model)
        do i = 0, mine%count - 1
          sampler%rank = mine%first + i
          call ddp_sampler_fill(sampler, epoch, first, count, chosen)
          call work(model, chosen(:count), merge(DDP_PASS_PART, DDP_PASS_REDUCE, i + 1 < mine%count), loss)
          sums(2 * i + 1) = sums(2 * i + 1) + loss
          sums(2 * i + 2) = sums(2 * i + 2) + real(count, f64)
        end do
        call ddp_model_get_grad_norm(model, 2.0_f64, norm)
        if (norm > 0.5_f64) call ddp_model_scale_grad(model, 0.5_f64 / norm)
        call ddp_optimizer_step(sgd)
        call ddp_ema_update(ema)
      end do
      call ddp_group_reduce_part_metrics(group, sums, 2_i64, DDP_SUM)
    end do
  end subroutine

  function hex(bits) result(text)
    integer(i64), intent(in) :: bits
    character(16) :: text
    integer :: i
    write (text, '(z16.16)') bits
    do i = 1, 16
      if (text(i:i) >= 'A' .and. text(i:i) <= 'F') text(i:i) = achar(iachar(text(i:i)) + 32)
    end do
  end function
end module

program same_bits
  use network
  implicit none
  type(ddp_group) :: group
  type(ddp_group_options) :: meeting
  type(ddp_model) :: model
  type(ddp_optimizer) :: sgd
  type(ddp_sgd_options) :: rule
  type(ddp_ema) :: ema
  real(f64) :: sums(16)
  integer(i64) :: parameters, averages
  character(16) :: parts
  integer :: length
  call ddp_group_options_init(meeting)
  call get_environment_variable('SAME_BITS_PARTS', parts, length)
  if (length > 0) read (parts, *) meeting%virtual_ranks
  call ddp_group_create(group, options=meeting)
  call start(ddp_group_get_rank(group))
  model = lend_all(group)
  call ddp_sgd_options_init(rule)
  rule%rate = 0.0625_f64
  rule%momentum = 0.875_f64
  call ddp_optimizer_create_sgd(model, sgd, rule)
  call ddp_ema_create(model, [0.75_f64], 1, ema)
  call train(group, model, sgd, ema, sums)
  call ddp_model_get_hash(model, parameters)
  call ddp_ema_swap(ema, 0)
  call ddp_model_get_hash(model, averages)
  call ddp_ema_swap(ema, 0)
  write (*, '(a, i0, a, i0, 6a)') 'rank ', ddp_group_get_rank(group), ' of ', ddp_group_get_size(group), &
    ': parameters ', hex(parameters), ' averages ', hex(averages), ' loss ', hex(transfer(sums(1) / sums(2), 0_i64))
  flush (6)
  call ddp_group_barrier(group)
  call ddp_ema_destroy(ema)
  call ddp_optimizer_destroy(sgd)
  call ddp_model_destroy(model)
  call ddp_group_destroy(group)
end program
