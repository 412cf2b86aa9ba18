// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The training that loses ranks. Gradients are multiples of 6 and all factors powers of two, so with 1, 2 or 3 ranks nothing is rounded.
const (
	survivalRate, survivalMomentum = 0.0625, 0.5
	survivalSteps, survivalCount   = 12, 5000
)

func survivalGradient(id, step, element int) float64 {
	return float64(6 * ((7*id+3*step+element)%11 - 5))
}

func hashOf(values []float32) uint64 {
	hash := fnv.New64a()
	for _, value := range values {
		bits := math.Float32bits(value)
		hash.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
	}
	return hash.Sum64()
}

// replay is what the weights must be: members says by step which ids took part.
func replay(members []string) uint64 {
	value, momentum := make([]float32, survivalCount), make([]float64, survivalCount)
	for i := range value {
		value[i] = 1
	}
	for step, ids := range members {
		for i := range value {
			sum := 0.0
			for _, id := range ids {
				sum += survivalGradient(int(id-'0'), step, i)
			}
			momentum[i] = survivalMomentum*momentum[i] + sum/float64(len(ids))
			value[i] -= float32(survivalRate * momentum[i])
		}
	}
	return hashOf(value)
}

type survivor struct {
	id      int
	group   *Group
	model   *Model
	sgd     *Optimizer
	value   []float32
	grad    []float32
	ids     string
	members []string // by step
	asked   bool     // for more ranks than there are
}

func survives() (err error) {
	s := &survivor{value: make([]float32, survivalCount)}
	if s.id, err = strconv.Atoi(os.Getenv("DDP_TEST_ID")); err != nil {
		return err
	}
	options := DefaultGroupOptions()
	options.Rank, options.WorldSize, options.Recoverable, options.RendezvousTimeout = s.id, 3, true, 30*time.Second
	if s.group, err = NewGroup("file://"+os.Getenv("DDP_TEST_FILE"), options); err != nil {
		return err
	}
	defer s.group.Close()
	for i := range s.value {
		s.value[i] = 1
	}
	if s.model, err = NewModel(s.group, &ModelOptions{BucketBytes: 8000}); err != nil {
		return err
	}
	defer s.model.Close()
	if _, err = s.model.AddParameter("w", Of(s.value)); err != nil {
		return err
	}
	if err = s.model.Commit(); err != nil {
		return err
	}
	if s.grad, err = Grad[float32](s.model, 0); err != nil {
		return err
	}
	if s.sgd, err = NewSGD(s.model, &SGDOptions{Rate: survivalRate, Momentum: survivalMomentum}); err != nil {
		return err
	}
	if err = s.learn(); err != nil {
		return err
	}
	return s.train()
}

// learn finds out who takes part.
func (s *survivor) learn() error {
	ids := make([]int64, s.group.Size())
	if err := s.group.AllGather(Of([]int64{int64(s.id)}), Of(ids)); err != nil {
		return err
	}
	s.ids = ""
	for _, id := range ids {
		s.ids += strconv.Itoa(int(id))
	}
	return nil
}

func (s *survivor) step(step int) (err error) {
	open, err := s.model.Backward(Reduce)
	if err != nil {
		return err
	}
	for i := range s.grad {
		s.grad[i] = float32(survivalGradient(s.id, step, i))
	}
	time.Sleep(20 * time.Millisecond)
	if err := open.Ready(0); err != nil {
		return err
	}
	if err := open.End(nil); err != nil {
		return err
	}
	return s.sgd.Step()
}

func (s *survivor) train() error {
	for {
		made, err := s.sgd.StepCount()
		if err != nil || made == survivalSteps {
			break
		}
		s.members = s.members[:made]
		if err = s.step(int(made)); err == nil {
			s.members = append(s.members, s.ids)
			fmt.Println("step", made+1)
		}
		for ; err != nil; err = s.learn() { // in which one more may be found dead
			if err := s.recover(err); err != nil {
				return err
			}
		}
	}
	if err := s.model.CheckReplicas(); err != nil {
		return err
	}
	fmt.Println("end", hashOf(s.value), strings.Join(s.members, " "))
	return s.group.Barrier()
}

func (s *survivor) recover(cause error) error {
	if !errors.Is(cause, PeerFailed) && !errors.Is(cause, Aborted) && !errors.Is(cause, TimedOut) {
		return cause
	}
	failed, err := s.group.Failed()
	if err != nil || len(failed) == 0 {
		return fmt.Errorf("%v: %v failed: %w", cause, failed, err)
	}
	for rank := 0; rank < s.group.Size(); rank++ {
		seen, err := s.group.Progress(rank)
		if err != nil || seen.Pass < -1 || seen.Pass > survivalSteps || seen.Bucket < -1 || seen.Silent < 0 || seen.Silent > time.Minute {
			return fmt.Errorf("of rank %d: %+v, %v", rank, seen, err)
		}
		if own := rank == s.group.Rank(); (seen.Call != "" || own) && !strings.HasPrefix(seen.Call, "ddp_") || own && seen.InCall {
			return fmt.Errorf("of rank %d: %+v", rank, seen)
		}
	}
	rank, size := s.group.Rank(), s.group.Size()
	if !s.asked {
		s.asked = true
		if _, err := s.group.Recover(&RecoverOptions{MinRanks: size}); !errors.Is(err, TooFewRanks) {
			return fmt.Errorf("with MinRanks %d: %v", size, err)
		}
	}
	found, err := s.group.Recover(&RecoverOptions{Wait: 20 * time.Second})
	if err != nil {
		return err
	}
	if found.PreviousRank != rank || found.PreviousSize != size || found.Rank != s.group.Rank() || found.Size != s.group.Size() ||
		found.Source < -1 || found.Source >= found.Size || found.Took <= 0 || found.Took > time.Minute {
		return fmt.Errorf("%+v", found)
	}
	if made, err := s.sgd.StepCount(); err != nil || made != found.Step {
		return fmt.Errorf("%+v, but %d steps: %v", found, made, err)
	}
	fmt.Println("recovered", found.Generation, found.Size, found.Gone, found.Joined, found.Renumbered)
	return nil
}

func TestTheOthersGoOnWhenRanksAreKilled(t *testing.T) {
	file := t.TempDir() + "/meeting"
	commands, outputs, said := [3]*exec.Cmd{}, [3]*bufio.Scanner{}, [3]string{}
	for id := range commands {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), "DDP_TEST_ROLE=survives", "DDP_TEST_FILE="+file, fmt.Sprint("DDP_TEST_ID=", id))
		output, err := command.StdoutPipe()
		check(t, err)
		command.Stderr = os.Stderr
		check(t, command.Start())
		t.Cleanup(func() { command.Process.Kill() })
		commands[id], outputs[id] = command, bufio.NewScanner(output)
		outputs[id].Buffer(nil, 1<<20)
	}
	waitFor := func(id int, start string) string {
		t.Helper()
		for outputs[id].Scan() {
			said[id] += outputs[id].Text() + "\n"
			if strings.HasPrefix(outputs[id].Text(), start) {
				return outputs[id].Text()
			}
		}
		t.Fatalf("rank %d ended before it said %q:\n%s", id, start, said[id])
		return ""
	}
	kill := func(id int) {
		check(t, commands[id].Process.Kill())
		_ = commands[id].Wait()
	}
	waitFor(0, "step 3")
	kill(0)
	waitFor(2, "recovered 2 2 [0] [] [-1 0 1]")
	waitFor(2, "step 8")
	kill(2)
	waitFor(1, "recovered 3 1 [1] [] [0 -1]")
	words := strings.Fields(waitFor(1, "end "))
	check(t, commands[1].Wait())
	members := words[2:]
	if len(members) != survivalSteps || members[0] != "012" || members[6] != "12" || members[survivalSteps-1] != "1" {
		t.Fatal(members)
	}
	if words[1] != fmt.Sprint(replay(members)) {
		t.Fatalf("the weights are not those of a replay of %v", members)
	}
}

func TestThereIsNothingToRecover(t *testing.T) {
	options := DefaultGroupOptions()
	options.Rank, options.WorldSize, options.Recoverable = 0, 1, true
	group, err := NewGroup("tcp://127.0.0.1:1", options)
	check(t, err)
	defer group.Close()
	_, err = group.Recover(nil)
	is(t, err, InvalidState, "the group is whole")
	_, err = group.Recover(&RecoverOptions{MinRanks: -1})
	is(t, err, InvalidArgument, "min_ranks")
	_, err = group.Progress(1)
	is(t, err, InvalidArgument, "rank is 1")
	if failed, err := group.Failed(); err != nil || len(failed) != 0 {
		t.Fatal(failed, err)
	}
	check(t, group.Close())
	_, err = group.Failed()
	is(t, err, InvalidArgument)
	broken := alone(t)
	check(t, broken.Abort("enough"))
	_, err = broken.Recover(nil)
	is(t, err, InvalidState, "recoverable = 1")
	model, err := NewModel(alone(t), nil)
	check(t, err)
	is(t, (&State{Model: model}).Keep([]byte("own")), InvalidState, "recoverable = 1")
}
