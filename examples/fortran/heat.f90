! SPDX-License-Identifier: Apache-2.0
! The heat equation in a Fortran program that owns its arrays: column-major, with ghost cells, in blocks of the program's choice.
! The library computes odd steps. A loop of this program computes even steps, with ghost cells that the library fills.
program heat
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use mpi
  implicit none

  interface
    function heat_begin(comm, ly, ranks) bind(C) result(solver)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int), value :: comm
      integer(c_int64_t), intent(in) :: ly(*)
      integer(c_int), value :: ranks
      type(c_ptr) :: solver
    end function
    function heat_fill_ghosts(solver, u) bind(C) result(status)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: solver
      real(c_double), intent(inout) :: u(:, :)
      integer(c_int) :: status
    end function
    function heat_step(solver, u, next) bind(C) result(status)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: solver
      real(c_double), intent(inout) :: u(:, :), next(:, :)
      integer(c_int) :: status
    end function
    subroutine heat_end(solver) bind(C)
      import :: c_ptr
      type(c_ptr), value :: solver
    end subroutine
  end interface

  integer, parameter :: nx = 64, ny = 40, steps = 20
  integer(c_int64_t), parameter :: ly(3) = [19, 7, 14]
  real(c_double), parameter :: pi = acos(-1.0_c_double)
  real(c_double), allocatable :: u(:, :), next(:, :), first(:, :)
  real(c_double) :: factor, worst, worst_of_all
  type(c_ptr) :: solver
  integer :: rank, ranks, n, begin, i, j, t, ierr
  character(len=64) :: argument

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  if (command_argument_count() > 0) then
    call get_command_argument(1, argument)
    if (rank == 0 .and. argument == '--help') print '(a)', 'Computes the heat equation on 3 ranks. It has no options.'
    if (rank == 0 .and. argument /= '--help') &
      write (error_unit, '(3a)') 'heat-fortran: unknown option ', trim(argument), '; it has no options'
    call MPI_Finalize(ierr)
    if (argument /= '--help') stop 2
    stop
  end if
  if (ranks /= size(ly)) then
    if (rank == 0) print '(a)', 'heat: start it on 3 ranks'
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end if
  n = int(ly(rank + 1))
  begin = int(sum(ly(1:rank)))

  ! A mode of the discrete equation: each step multiplies it by a known factor.
  allocate (u(0:nx + 1, 0:n + 1), next(0:nx + 1, 0:n + 1), first(0:nx + 1, 0:n + 1))
  u = 0
  next = 0
  do j = 1, n
    do i = 1, nx
      u(i, j) = sin(pi * i / (nx + 1)) * sin(pi * (begin + j) / (ny + 1))
    end do
  end do
  first(:, :) = u
  factor = 1 - 0.1_c_double * (4 - 2 * cos(pi / (nx + 1)) - 2 * cos(pi / (ny + 1)))

  solver = heat_begin(MPI_COMM_WORLD, ly, ranks)
  if (.not. c_associated(solver)) call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  do t = 1, steps
    if (mod(t, 2) == 1) then
      if (heat_step(solver, u(1:nx, 1:n), next(1:nx, 1:n)) /= 0) call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
    else
      if (heat_fill_ghosts(solver, u) /= 0) call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
      do j = 1, n
        do i = 1, nx
          next(i, j) = u(i, j) + 0.1_c_double * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4 * u(i, j))
        end do
      end do
    end if
    u(1:nx, 1:n) = next(1:nx, 1:n)
  end do
  call heat_end(solver)

  worst = 0
  do j = 1, n
    do i = 1, nx
      worst = max(worst, abs(u(i, j) - factor**steps * first(i, j)))
    end do
  end do
  call MPI_Allreduce(worst, worst_of_all, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
  if (rank == 0) then
    print '(a, i0, a, f6.4)', 'after ', steps, ' steps the temperature has fallen to ', factor**steps
    print '(a, es7.1, 2a)', 'check: the largest difference from the exact result is ', worst_of_all, &
      '; at most 1e-13 is allowed: ', trim(merge('ok    ', 'FAILED', worst_of_all < 1e-13_c_double))
  end if
  call MPI_Finalize(ierr)
  if (.not. worst_of_all < 1e-13_c_double) stop 1
end program
