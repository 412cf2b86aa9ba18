! SPDX-License-Identifier: Apache-2.0
! What Fortran adds to the C functions, on two ranks: ddprun -n 2 fortran_api FOLDER. With another word than a folder it meets an error
! that it does not ask about: `unasked`, `gaps`, `shape`.
module rules
  use ddp
  implicit none
  integer(c_int64_t) :: written = 0
  integer :: failures = 0, released = 0
  logical :: refuse = .false.
contains
  ! Plain descent; the rule's own state counts the steps of each element.
  integer(c_int32_t) function descend(user_data, slice) bind(c) result(answer)
    type(c_ptr), value :: user_data
    type(ddp_update_slice), intent(in) :: slice
    real(c_float), pointer :: value(:), grad(:), steps(:), factor
    call c_f_pointer(user_data, factor)
    call c_f_pointer(slice%value, value, [slice%count])
    call c_f_pointer(slice%grad, grad, [slice%count])
    call c_f_pointer(slice%state(1), steps, [slice%count])
    value = value - factor * real(slice%rate, c_float) * grad
    steps = steps + 1
    answer = merge(1, 0, refuse .or. any(nint(steps) /= slice%step))
  end function

  subroutine release(user_data) bind(c)
    type(c_ptr), value :: user_data
    if (c_associated(user_data)) released = released + 1
  end subroutine

  integer(c_int32_t) function count_bytes(user_data, data, bytes) bind(c) result(answer)
    type(c_ptr), value :: user_data, data
    integer(c_int64_t), value :: bytes
    if (c_associated(data) .and. .not. c_associated(user_data)) written = written + bytes
    answer = 0
  end function

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    if (holds) return
    failures = failures + 1
    print '(2a)', 'wrong: ', what
  end subroutine
end module

program api_test
  use rules
  implicit none
  type(ddp_group) :: group
  character(200) :: word
  call get_command_argument(1, word)
  call ddp_group_create(group)
  select case (word)
  case ('unasked')
    call without_stat(group)
  case ('gaps')
    call with_gaps(group)
  case ('shape')
    call other_shape(group)
  case default
    call sums(group)
    call model_and_rule(group, trim(word))
    call ddp_group_barrier(group)
    call ddp_group_destroy(group)
    call expect(.not. c_associated(group%handle), 'a destroyed handle is empty')
    call ddp_group_destroy(group)
    if (failures > 0) error stop 1
    print '(a)', 'all as it should be'
  end select
contains
  subroutine sums(group)
    type(ddp_group), intent(in) :: group
    integer(c_int64_t), target :: counted(5)
    real(c_double), target :: table(4, 3)
    complex(c_float_complex), target :: pair(2)
    real(c_double) :: metrics(2)
    type(ddp_tensor) :: tensor
    integer(c_int32_t) :: stat
    integer :: i, rank, size
    rank = ddp_group_get_rank(group)
    size = ddp_group_get_size(group)
    call expect(size == 2, 'two ranks')
    counted = [(i * 10_c_int64_t**rank, i = 1, 5)]
    call ddp_group_all_reduce(group, ddp_tensor_of(counted), DDP_SUM)
    call expect(all(counted == [(11_c_int64_t * i, i = 1, 5)]), 'a sum of integers')
    table = rank
    table(4, 1) = 7 + rank
    tensor = ddp_tensor_of(table)
    call expect(tensor%ndim == 2 .and. all(tensor%shape(:2) == [3, 4]), 'dimensions the other way round')
    call ddp_group_broadcast(group, tensor, 1)
    call expect(table(4, 1) == 8 .and. table(1, 1) == 1 .and. sum(table) == 19, 'the values of rank 1')
    pair = cmplx(rank, 1, c_float_complex)
    call ddp_group_all_reduce(group, ddp_tensor_of(pair(1)), DDP_AVERAGE, stat=stat) ! a scalar
    call expect(stat == DDP_OK .and. pair(1) == (0.5, 1.0) .and. pair(2) == cmplx(rank, 1), 'the mean of one complex number')
    metrics = [1.0_c_double, real(rank, c_double)]
    call ddp_group_reduce_metrics(group, metrics, 2_c_int64_t, DDP_MAX)
    call expect(all(metrics == 1), 'metrics')
    call ddp_group_all_reduce(group, tensor, 17, stat=stat)
    call expect(stat == DDP_ERROR_INVALID_ARGUMENT, 'a status')
    call expect(index(ddp_last_error(), '17') > 0, 'its text: ' // ddp_last_error())
    call expect(ddp_status_name(stat) == 'DDP_ERROR_INVALID_ARGUMENT', 'its name')
  end subroutine

  ! Three steps by a rule of our own: w goes from 8 by 0.5 * 2 * mean(0, 2) = 1 a step, exactly.
  subroutine model_and_rule(group, folder)
    type(ddp_group), intent(in) :: group
    character(*), intent(in) :: folder
    type(ddp_model) :: model
    type(ddp_optimizer) :: optimizer
    type(ddp_custom_options) :: rule
    type(ddp_state) :: state
    type(ddp_load_report) :: report
    type(ddp_model_stats) :: stats
    type(ddp_tensor) :: tensor
    real(c_float), target, save :: w(3, 2) = 8, factor = 2
    real(c_float), pointer :: grad(:, :), flat(:)
    character(:), allocatable :: text
    integer(c_int32_t) :: stat, index_of_w
    integer :: step
    call ddp_model_create(group, model)
    call ddp_model_begin_backward(model, DDP_PASS_REDUCE, stat)
    call expect(stat == DDP_ERROR_INVALID_STATE .and. index(ddp_last_error(), 'ddp_model_commit') > 0, 'a pass too soon')
    call ddp_model_add_parameter(model, 'layer.w   ', ddp_tensor_of(w), out_index=index_of_w)
    call expect(index_of_w == 0 .and. ddp_model_get_parameter_count(model) == 1, 'a parameter')
    call ddp_model_commit(model)
    call ddp_model_describe_plan(model, text)
    call expect(index(text, 'layer.w') > 0 .and. index(text, 'layer.w ') + index(text, c_null_char) == 0, 'a plan: ' // text)
    call ddp_model_get_grad(model, 0, tensor)
    call ddp_tensor_pointer(tensor, flat, stat)
    call expect(stat == DDP_ERROR_INVALID_ARGUMENT .and. .not. associated(flat), 'another number of dimensions')
    call ddp_tensor_pointer(tensor, grad, stat)
    call expect(stat == DDP_OK .and. all(shape(grad) == [3, 2]), 'a gradient')
    call ddp_custom_options_init(rule)
    rule%rate = 0.5_c_double
    call ddp_optimizer_create_custom(model, descend, optimizer, rule, state_names='steps', user_data=c_loc(factor), release=release)
    do step = 1, 4
      refuse = step == 4
      call ddp_model_begin_backward(model, DDP_PASS_REDUCE)
      grad = 2 * ddp_group_get_rank(group)
      call ddp_model_mark_ready(model, index_of_w)
      call ddp_model_end_backward(model)
      call expect(all(grad == 1), 'the mean')
      call ddp_optimizer_step(optimizer, stat=stat)
    end do
    call expect(stat == DDP_ERROR_CALLBACK .and. all(w == 5), 'three steps, and one that the rule refused')
    call ddp_model_get_stats(model, stats)
    call expect(stats%passes == 4 .and. stats%elements == 6, 'numbers')
    call ddp_model_set_metadata(model, 'best', 'step 3')
    call ddp_model_get_metadata(model, 'worst', text)
    call expect(.not. allocated(text), 'a text that is not there')
    call ddp_state_init(state)
    state%model = model
    state%step = 3
    call ddp_state_save_file(state, folder // '/w.safetensors')
    call ddp_state_save(state, count_bytes)
    call expect((written > 24) .eqv. (ddp_group_get_rank(group) == 0), 'a checkpoint through a function, on rank 0')
    call ddp_model_set_metadata(model, 'best') ! NULL: removed
    w = 0
    call ddp_state_load_file(state, folder // '/w.safetensors', out_report=report)
    call ddp_model_get_metadata(model, 'best', text)
    call expect(all(w == 5) .and. report%step == 3 .and. text == 'step 3', 'loaded')
    call ddp_state_load_file(state, folder // '/none', stat=stat)
    call expect(stat == DDP_ERROR_IO, 'no file')
    call ddp_model_check_replicas(model)
    call ddp_optimizer_destroy(optimizer)
    call expect(released == 1, 'released once')
    call ddp_model_destroy(model)
  end subroutine

  subroutine without_stat(group)
    type(ddp_group), intent(in) :: group
    call ddp_group_broadcast(group, ddp_tensor(), 0)
    print '(a)', 'wrong: went on'
  end subroutine

  subroutine with_gaps(group)
    type(ddp_group), intent(in) :: group
    real(c_float), target, save :: table(4, 4) = 1
    call ddp_group_broadcast(group, ddp_tensor_of(table(::2, :)), 0)
    print '(a)', 'wrong: went on'
  end subroutine

  subroutine other_shape(group)
    type(ddp_group), intent(in) :: group
    real(c_float), pointer :: p(:)
    call ddp_tensor_pointer(ddp_tensor(), p)
    print '(a, i0)', 'wrong: went on ', ddp_group_get_rank(group)
  end subroutine
end program
