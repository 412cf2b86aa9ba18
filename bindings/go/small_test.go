// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"errors"
	"math"
	"reflect"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// The constants of this package are written out, so that Go knows them when it compiles; here they meet those of the header.
func TestConstantsAreThoseOfTheHeader(t *testing.T) {
	pairs := [][2]int{
		{int(InvalidArgument), int(low.DDP_ERROR_INVALID_ARGUMENT)}, {int(InvalidState), int(low.DDP_ERROR_INVALID_STATE)},
		{int(NotSupported), int(low.DDP_ERROR_NOT_SUPPORTED)}, {int(OutOfMemory), int(low.DDP_ERROR_OUT_OF_MEMORY)},
		{int(TimedOut), int(low.DDP_ERROR_TIMED_OUT)}, {int(PeerFailed), int(low.DDP_ERROR_PEER_FAILED)},
		{int(Aborted), int(low.DDP_ERROR_ABORTED)}, {int(Mismatch), int(low.DDP_ERROR_MISMATCH)}, {int(IO), int(low.DDP_ERROR_IO)},
		{int(Callback), int(low.DDP_ERROR_CALLBACK)}, {int(Internal), int(low.DDP_ERROR_INTERNAL)},
		{int(TooFewRanks), int(low.DDP_ERROR_TOO_FEW_RANKS)}, {int(Fenced), int(low.DDP_ERROR_FENCED)}, {int(NoCheckpoint), int(low.DDP_ERROR_NO_CHECKPOINT)},
		{int(NoMajority), int(low.DDP_ERROR_NO_MAJORITY)}, {int(DifferentCalls), int(low.DDP_ERROR_DIFFERENT_CALLS)},
		{int(F32), int(low.DDP_F32)}, {int(F64), int(low.DDP_F64)}, {int(F16), int(low.DDP_F16)}, {int(BF16), int(low.DDP_BF16)},
		{int(I32), int(low.DDP_I32)}, {int(I64), int(low.DDP_I64)}, {int(U8), int(low.DDP_U8)}, {int(C64), int(low.DDP_C64)}, {int(C128), int(low.DDP_C128)},
		{int(CPU), int(low.DDP_CPU)}, {int(CUDA), int(low.DDP_CUDA)},
		{int(Average), int(low.DDP_AVERAGE)}, {int(Sum), int(low.DDP_SUM)}, {int(Min), int(low.DDP_MIN)}, {int(Max), int(low.DDP_MAX)}, {int(Product), int(low.DDP_PRODUCT)},
		{int(BackendAuto), int(low.DDP_BACKEND_AUTO)}, {int(BackendGloo), int(low.DDP_BACKEND_GLOO)},
		{int(BackendNCCL), int(low.DDP_BACKEND_NCCL)}, {int(BackendShm), int(low.DDP_BACKEND_SHM)},
		{int(BackendLocal), int(low.DDP_BACKEND_LOCAL)},
		{int(ByRank), int(low.DDP_SUM_ORDER_BY_RANK)}, {int(ByHost), int(low.DDP_SUM_ORDER_BY_HOST)},
		{int(LinksAuto), int(low.DDP_LINKS_AUTO)}, {int(LinksEncrypted), int(low.DDP_LINKS_ENCRYPTED)}, {int(LinksPlain), int(low.DDP_LINKS_PLAIN)},
		{int(ProgressAuto), int(low.DDP_PROGRESS_AUTO)}, {int(ProgressCaller), int(low.DDP_PROGRESS_CALLER)},
		{int(ProgressThread), int(low.DDP_PROGRESS_THREAD)},
		{int(DivisorWorld), int(low.DDP_DIVISOR_WORLD)}, {int(DivisorWeights), int(low.DDP_DIVISOR_WEIGHTS)},
		{int(NonFiniteKeep), int(low.DDP_NONFINITE_KEEP)}, {int(NonFiniteSkip), int(low.DDP_NONFINITE_SKIP)},
		{int(NonFiniteFail), int(low.DDP_NONFINITE_FAIL)},
		{int(DriftReport), int(low.DDP_DRIFT_REPORT)}, {int(DriftResend), int(low.DDP_DRIFT_RESEND)},
		{int(Reduce), int(low.DDP_PASS_REDUCE)}, {int(Accumulate), int(low.DDP_PASS_ACCUMULATE)},
		{int(LocalPass), int(low.DDP_PASS_LOCAL)},
		{int(LogDebug), int(low.DDP_LOG_DEBUG)}, {int(LogInfo), int(low.DDP_LOG_INFO)}, {int(LogWarning), int(low.DDP_LOG_WARNING)},
		{int(LogError), int(low.DDP_LOG_ERROR)}, {int(LogOff), int(low.DDP_LOG_OFF)},
	}
	for i, pair := range pairs {
		if pair[0] != pair[1] {
			t.Errorf("pair %d: %d is %d in the header", i, pair[0], pair[1])
		}
	}
	if Version() != low.Version || !strings.HasPrefix(BuildInfo(), "libddp") && !strings.Contains(BuildInfo(), VersionString()) {
		t.Error(Version(), low.Version, BuildInfo())
	}
}

func TestAnEpochGoesOnWithAnotherNumberOfRanks(t *testing.T) {
	seen := map[int64]int{}
	take := func(s *Sampler, count int) {
		indices := make([]int64, count)
		check(t, s.Fill(3, 0, indices))
		for _, index := range indices {
			seen[index]++
		}
	}
	for rank := 0; rank < 2; rank++ {
		take(&Sampler{DatasetSize: 11, Rank: rank, Size: 2}, 3)
	}
	group := alone(t)
	rest := &Sampler{DatasetSize: 11, Size: 2}
	rest.Resume(group, 3)
	count, err := rest.Count()
	check(t, err)
	if rest.Seen != 6 || rest.Size != 1 || count != 5 {
		t.Fatal(rest.Seen, rest.Size, count)
	}
	take(rest, count)
	if len(seen) != 11 {
		t.Fatal(seen)
	}
}

func TestASamplerSharesEveryIndex(t *testing.T) {
	var all []int64
	for rank := 0; rank < 3; rank++ {
		sampler := &Sampler{DatasetSize: 10, Rank: rank, Size: 3, DropLast: true}
		indices, err := sampler.Indices(5)
		check(t, err)
		part := make([]int64, 2)
		check(t, sampler.Fill(5, 1, part))
		if !reflect.DeepEqual(part, indices[1:3]) {
			t.Fatal(part, indices)
		}
		all = append(all, indices...)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			t.Fatal("an index came twice", all)
		}
	}
	inOrder, err := (&Sampler{DatasetSize: 4, Size: 2, InOrder: true}).Indices(0)
	if err != nil || !reflect.DeepEqual(inOrder, []int64{0, 2}) {
		t.Fatal(inOrder, err)
	}
	is(t, (&Sampler{DatasetSize: 4, Size: 1}).Fill(0, 3, make([]int64, 2)), InvalidArgument)
	if sampler := NewSampler(alone(t), 7); sampler.Size != 1 || sampler.DatasetSize != 7 {
		t.Fatal(sampler)
	}
}

type memoryStore struct {
	sync.Mutex
	values map[string][]byte
	broken error
}

func (s *memoryStore) Set(key string, value []byte) error {
	s.Lock()
	defer s.Unlock()
	s.values[key] = value
	return s.broken
}

func (s *memoryStore) Get(key string, timeout time.Duration) ([]byte, error) {
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.Lock()
		value, found := s.values[key]
		s.Unlock()
		if found || s.broken != nil {
			return value, s.broken
		}
	}
	return nil, TimedOut
}

func meetAtAStore(t *testing.T) {
	t.Helper()
	store := &memoryStore{values: map[string][]byte{}}
	failures := make(chan error, 2)
	for rank := 0; rank < 2; rank++ {
		go func(rank int) {
			options := DefaultGroupOptions()
			options.Rank, options.WorldSize, options.Store, options.RendezvousTimeout = rank, 2, store, 20*time.Second
			group, err := NewGroup("store://", options)
			if err == nil {
				err = group.Barrier()
				group.Close()
			}
			failures <- err
		}(rank)
	}
	check(t, <-failures)
	check(t, <-failures)
}

func TestRanksMeetAtAStoreOfTheCaller(t *testing.T) {
	meetAtAStore(t)
	options := DefaultGroupOptions()
	options.Rank, options.WorldSize, options.RendezvousTimeout = 1, 2, 100*time.Millisecond
	options.Store = &memoryStore{values: map[string][]byte{}}
	_, err := NewGroup("store://", options)
	is(t, err, TimedOut)
	reason := errors.New("the store is on fire")
	options.Store = &memoryStore{values: map[string][]byte{}, broken: reason}
	if _, err := NewGroup("store://", options); !errors.Is(err, reason) {
		t.Fatal(err, "does not tell why")
	}
}

func TestLogMessagesReachTheReceiver(t *testing.T) {
	var mutex sync.Mutex
	var texts []string
	check(t, SetLog(LogDebug, func(_ LogLevel, text string) {
		mutex.Lock()
		defer mutex.Unlock()
		texts = append(texts, text)
		panic("is not the library's business")
	}))
	meetAtAStore(t)
	check(t, SetLog(LogWarning, nil))
	is(t, SetLog(LogLevel(99), nil), InvalidArgument)
	mutex.Lock()
	defer mutex.Unlock()
	if len(texts) == 0 {
		t.Fatal("nothing was logged")
	}
}

func TestBatchNormIsThatOfTheWholeBatch(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		r := float32(group.Rank())
		x, y := []float32{r, 2 * r}, make([]float32, 2) // one sample, two channels: 0 and 1, 0 and 2
		norm := NewBatchNorm(2)
		norm.Epsilon, norm.Momentum = 0, 1
		mean, variance := make([]float64, 2), make([]float64, 2)
		norm.RunningMean, norm.RunningVar = Of(mean), Of(variance)
		if err := norm.Forward(group, Of(x, 1, 2), Of(y, 1, 2)); err != nil {
			return err
		}
		want := 2*r - 1
		if y[0] != want || y[1] != want || mean[1] != 1 || variance[1] != 2 || norm.Count != 2 {
			return &Error{Status: Internal, Text: "a wrong result"}
		}
		dx, dbias := make([]float32, 2), make([]float32, 2)
		if err := norm.Backward(group, Of([]float32{1, 1}, 1, 2), Of(x, 1, 2), Of(dx, 1, 2), Tensor{}, Of(dbias)); err != nil {
			return err
		}
		if math.Abs(float64(dx[0])) > 1e-6 || dbias[0] != 1 {
			return &Error{Status: Internal, Text: "a wrong gradient"}
		}
		return nil
	})
}
