# SPDX-License-Identifier: Apache-2.0
@testset "numbers of the program are checked" begin
    alone() do group
        @test LibDDP.log_metric(group, "julia/loss", 1) === nothing
        fails(() -> LibDDP.log_metric(group, "my loss", 1), :INVALID_ARGUMENT)
    end
end

@testset "requests of one rank end by themselves" begin
    alone() do group
        a, joined, part = [1.0, 2.0], zeros(2), zeros(2)
        requests = [
            LibDDP.post_barrier(group), LibDDP.post_allreduce!(group, a), LibDDP.post_allgather!(group, joined, a), LibDDP.post_reducescatter!(group, part, a),
            LibDDP.post_bcast!(group, a), LibDDP.post_reduce!(group, a, max), LibDDP.post_gather!(group, zeros(2), a),
            LibDDP.post_scatter!(group, zeros(2), a), LibDDP.post_alltoall!(group, zeros(2), a), LibDDP.post_allgather!(group, zeros(2), a, [2]),
        ]
        @test fetch(requests[2]) === a && a == [1, 2]
        @test wait(requests[3]) && joined == a && wait(requests[4]) && part == a
        @test LibDDP.wait_any(requests[5:5]) == 1
        @test all(each -> wait(each; timeout = 20), requests)
        @test all(LibDDP.isdone, requests)
        foreach(close, requests)
        fails(() -> LibDDP.isdone(requests[1]), :INVALID_ARGUMENT)
        fails(() -> LibDDP.post_receive!(group, a), :INVALID_ARGUMENT)
        fails(() -> LibDDP.post_send(group, a; to = 0), :INVALID_ARGUMENT)
    end
end
