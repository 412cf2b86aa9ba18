! SPDX-License-Identifier: Apache-2.0
! Train a network on handwritten digits, on any number of ranks: examples/02_train.c in Fortran.
!
!   ddprun -n 2 ./digits digits.csv [EPOCHS [CHECKPOINT [resume]]]
!
! A perceptron with one hidden layer (64-96-10) reads 8x8 pixels and names the digit. Read train() first, then learn(): these two are what
! a program of your own needs. The global batch has 64 samples whatever the number of ranks.
module network
  use ddp
  implicit none
  integer, parameter :: pixels = 64, hidden = 96, digits = 10, global_batch = 64, f32 = c_float, f64 = c_double, i64 = c_int64_t

  ! Weights are ours: arrays with `target` that stay where they are. Gradients are libddp's: pointers to them.
  real(f32), target :: w1(pixels, hidden), b1(hidden), w2(hidden, digits), b2(digits)
  real(f32), pointer :: w1_grad(:, :), b1_grad(:), w2_grad(:, :), b2_grad(:)
  real(f32), allocatable :: images(:, :) ! 64 x samples
  integer, allocatable :: labels(:)
contains

  subroutine read_digits(path)
    character(*), intent(in) :: path
    integer :: unit, stat, count, i, row(pixels + 1)
    open (newunit=unit, file=path, action='read', status='old')
    count = 0
    do
      read (unit, *, iostat=stat) row
      if (stat /= 0) exit
      count = count + 1
    end do
    rewind (unit)
    allocate (images(pixels, count), labels(count))
    do i = 1, count
      read (unit, *) row
      images(:, i) = real(row(:pixels), f32) / 16
      labels(i) = row(pixels + 1)
    end do
    close (unit)
  end subroutine

  ! Every fifth sample tests, the others are learned: the n-th of either, counted from 0.
  pure integer function learned(n)
    integer(i64), intent(in) :: n
    learned = int(n) + int(n) / 4 + 2
  end function
  pure integer function tested(n)
    integer, intent(in) :: n
    tested = 5 * n + 1
  end function

  subroutine random_weights(w)
    real(f32), intent(out) :: w(:, :)
    call random_number(w)
    w = (2 * w - 1) * sqrt(6 / real(size(w, 1), f32))
  end subroutine

  ! The hidden values and the share of each digit.
  subroutine forward(image, h, p)
    real(f32), intent(in) :: image(pixels)
    real(f32), intent(out) :: h(hidden), p(digits)
    h = max(0.0_f32, matmul(image, w1) + b1)
    p = matmul(h, w2) + b2
    p = exp(p - maxval(p))
    p = p / sum(p)
  end subroutine

  ! One step on a batch of this rank: adds loss, right answers and samples to `sums`.
  subroutine learn(model, optimizer, chosen, sums)
    type(ddp_model), intent(in) :: model
    type(ddp_optimizer), intent(in) :: optimizer
    integer(i64), intent(in) :: chosen(:)
    real(f64), intent(inout) :: sums(:)
    real(f32) :: h(hidden, size(chosen)), p(digits, size(chosen)), delta(hidden, size(chosen))
    integer :: i, at
    do i = 1, size(chosen)
      at = learned(chosen(i))
      call forward(images(:, at), h(:, i), p(:, i))
      sums(1) = sums(1) - log(real(p(labels(at) + 1, i), f64))
      sums(2) = sums(2) + merge(1, 0, maxloc(p(:, i), 1) == labels(at) + 1)
      p(labels(at) + 1, i) = p(labels(at) + 1, i) - 1 ! from here on the gradient of the loss
    end do
    sums(3) = sums(3) + size(chosen)
    p = p / size(chosen)
    call ddp_model_begin_backward(model, DDP_PASS_REDUCE)
    w2_grad = matmul(h, transpose(p))
    b2_grad = sum(p, 2)
    call ddp_model_mark_ready(model, 3)
    call ddp_model_mark_ready(model, 2) ! complete: libddp may send it while we compute the layer below
    delta = merge(matmul(w2, p), 0.0_f32, h > 0)
    w1_grad = matmul(images(:, [(learned(chosen(i)), i = 1, size(chosen))]), transpose(delta))
    b1_grad = sum(delta, 2)
    call ddp_model_mark_ready(model, 1)
    call ddp_model_mark_ready(model, 0)
    call ddp_model_end_backward(model) ! now the gradients are the mean over all ranks, the same bits everywhere
    call ddp_optimizer_step(optimizer) ! ... and so is the step
  end subroutine

  ! Right answers of this rank's share of the test, and how many there were.
  subroutine test(rank, size_of_group, sums)
    integer, intent(in) :: rank, size_of_group
    real(f64), intent(inout) :: sums(:)
    real(f32) :: h(hidden), p(digits)
    integer :: n
    do n = rank, (size(labels) - 1) / 5, size_of_group
      call forward(images(:, tested(n)), h, p)
      sums(1) = sums(1) + merge(1, 0, maxloc(p, 1) == labels(tested(n)) + 1)
      sums(2) = sums(2) + 1
    end do
  end subroutine

  function lend_all(group) result(model)
    type(ddp_group), intent(in) :: group
    type(ddp_model) :: model
    type(ddp_tensor) :: grad
    call ddp_model_create(group, model)
    call ddp_model_add_parameter(model, 'hidden.weight', ddp_tensor_of(w1))
    call ddp_model_add_parameter(model, 'hidden.bias', ddp_tensor_of(b1))
    call ddp_model_add_parameter(model, 'output.weight', ddp_tensor_of(w2))
    call ddp_model_add_parameter(model, 'output.bias', ddp_tensor_of(b2))
    call ddp_model_commit(model) ! rank 0's weights go to everybody
    call ddp_model_get_grad(model, 0, grad)
    call ddp_tensor_pointer(grad, w1_grad)
    call ddp_model_get_grad(model, 1, grad)
    call ddp_tensor_pointer(grad, b1_grad)
    call ddp_model_get_grad(model, 2, grad)
    call ddp_tensor_pointer(grad, w2_grad)
    call ddp_model_get_grad(model, 3, grad)
    call ddp_tensor_pointer(grad, b2_grad)
  end function

  subroutine train(group, epochs, checkpoint, resume)
    type(ddp_group), intent(in) :: group
    integer, intent(in) :: epochs
    character(*), intent(in) :: checkpoint
    logical, intent(in) :: resume
    type(ddp_model) :: model
    type(ddp_optimizer) :: adam
    type(ddp_adam_options) :: rule
    type(ddp_sampler) :: sampler
    type(ddp_state) :: state
    type(ddp_load_report) :: at
    integer(i64) :: share, first, batch, chosen(global_batch)
    real(f64) :: sums(5)
    model = lend_all(group)
    call ddp_adam_options_init(rule)
    rule%rate = 0.004_f64
    call ddp_optimizer_create_adam(model, adam, rule)
    call ddp_state_init(state)
    state%model = model
    state%optimizer = adam
    if (resume) call ddp_state_load_file(state, checkpoint, out_report=at)
    state%epoch = at%epoch
    call ddp_sampler_init(sampler)
    sampler%dataset_size = size(labels) - (size(labels) + 4) / 5
    sampler%rank = ddp_group_get_rank(group)
    sampler%size = ddp_group_get_size(group)
    call ddp_sampler_get_count(sampler, share)
    batch = global_batch / sampler%size
    do while (state%epoch < epochs)
      sums = 0 ! loss, right, seen; right and seen in the test
      do first = 0, share - 1, batch
        call ddp_sampler_fill(sampler, state%epoch, first, min(batch, share - first), chosen)
        call learn(model, adam, chosen(:min(batch, share - first)), sums)
      end do
      call test(sampler%rank, sampler%size, sums(4:))
      call ddp_group_reduce_metrics(group, sums, 5_i64, DDP_SUM) ! sum first, divide afterwards
      state%epoch = state%epoch + 1
      if (sampler%rank == 0) print '(a, i3, 3(a, f8.4))', 'epoch', state%epoch, '  loss ', sums(1) / sums(3), &
        '  train ', 100 * sums(2) / sums(3), '  test accuracy ', 100 * sums(4) / sums(5)
    end do
    call ddp_state_save_file(state, checkpoint) ! every rank calls, rank 0 writes
    call ddp_model_check_replicas(model) ! are all weights the same on all ranks?
    if (sampler%rank == 0) print '(i0, a)', sampler%size, ' ranks, all equal'
    call ddp_optimizer_destroy(adam)
    call ddp_model_destroy(model)
  end subroutine
end module

program train_digits
  use network
  implicit none
  type(ddp_group) :: group
  character(500) :: words(4)
  integer :: i, stat, epochs
  do i = 1, 4
    call get_command_argument(i, words(i))
  end do
  if (words(1) == '') error stop 'usage: digits digits.csv [EPOCHS [CHECKPOINT [resume]]]'
  epochs = 15
  read (words(2), *, iostat=stat) epochs
  if (words(3) == '') words(3) = 'digits.safetensors'
  call ddp_group_create(group, stat=stat) ! rank and size come from the launcher; started alone, the group has one rank
  if (stat /= DDP_OK) then ! without `stat` a failing call ends the program with this text by itself
    print '(2a)', 'cannot meet the other ranks: ', ddp_last_error()
    error stop 1
  end if
  call read_digits(trim(words(1)))
  call random_weights(w1)
  call random_weights(w2)
  b1 = 0
  b2 = 0
  call train(group, epochs, trim(words(3)), words(4) == 'resume')
  call ddp_group_destroy(group)
end program
