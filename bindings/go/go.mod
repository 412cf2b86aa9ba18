module github.com/libddp/libddp/bindings/go

go 1.19
