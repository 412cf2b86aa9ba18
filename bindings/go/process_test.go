// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// roles are what this program does instead of testing when it is started as a rank of its own.
var roles = map[string]func() error{"dies": dies, "returns": returns, "survives": survives}

func TestMain(m *testing.M) {
	role, found := roles[os.Getenv("DDP_TEST_ROLE")]
	if !found {
		os.Exit(m.Run())
	}
	if err := role(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// meet forms a group of two processes at the file that the test chose.
func meet(rank int, file string) (*Group, error) {
	options := DefaultGroupOptions()
	options.Rank, options.WorldSize, options.RendezvousTimeout, options.Timeout = rank, 2, 30*time.Second, 60*time.Second
	return NewGroup("file://"+file, options)
}

// start runs this program as rank 1, and returns when that has formed its group with us.
func start(t *testing.T, role string) (*Group, *exec.Cmd, *bufio.Reader) {
	t.Helper()
	file := t.TempDir() + "/meeting"
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "DDP_TEST_ROLE="+role, "DDP_TEST_FILE="+file)
	output, err := command.StdoutPipe()
	check(t, err)
	command.Stderr = os.Stderr
	check(t, command.Start())
	group, err := meet(0, file)
	if err != nil {
		command.Process.Kill()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		group.Close()
		command.Process.Kill()
	})
	return group, command, bufio.NewReader(output)
}

func lend(group *Group) (*Model, error) {
	model, err := NewModel(group, nil)
	if err != nil {
		return nil, err
	}
	if _, err := model.AddParameter("weight", Of(make([]float32, 1<<20))); err != nil {
		return nil, err
	}
	return model, model.Commit()
}

func dies() error {
	group, err := meet(1, os.Getenv("DDP_TEST_FILE"))
	if err != nil {
		return err
	}
	if _, err := lend(group); err != nil {
		return err
	}
	fmt.Println("ready")
	time.Sleep(time.Minute) // the test kills this process
	return nil
}

// returns ends main while a pass is open and another goroutine waits in a collective of a second group.
func returns() error {
	file := os.Getenv("DDP_TEST_FILE")
	group, err := meet(1, file)
	if err != nil {
		return err
	}
	second, err := meet(1, file+"#second")
	if err != nil {
		return err
	}
	model, err := lend(group)
	if err != nil {
		return err
	}
	open, err := model.Backward(Reduce)
	if err != nil {
		return err
	}
	if err := open.Ready(0); err != nil {
		return err
	}
	waiting := make(chan struct{})
	go func() {
		close(waiting)
		_ = second.Barrier()
	}()
	<-waiting
	fmt.Println("leaving")
	return nil
}

func TestADeadPeerIsNamed(t *testing.T) {
	group, command, output := start(t, "dies")
	model, err := lend(group)
	check(t, err)
	defer model.Close()
	if line, _ := output.ReadString('\n'); line != "ready\n" {
		t.Fatal(line)
	}
	open, err := model.Backward(Reduce)
	check(t, err)
	check(t, open.Ready(0))
	check(t, command.Process.Kill())
	begin := time.Now()
	is(t, open.End(nil), PeerFailed, "rank 1", fmt.Sprint(command.Process.Pid))
	if time.Since(begin) > 15*time.Second {
		t.Fatal("the others waited for", time.Since(begin))
	}
	is(t, group.Err(), PeerFailed, "rank 1")
	begin = time.Now()
	group.Close()
	if time.Since(begin) > 3*time.Second {
		t.Fatal("closing took", time.Since(begin))
	}
	_ = command.Wait()
}

func TestAProgramEndsWithWorkInFlight(t *testing.T) {
	file := ""
	group, command, output := start(t, "returns")
	for _, variable := range command.Env {
		if strings.HasPrefix(variable, "DDP_TEST_FILE=") {
			file = strings.TrimPrefix(variable, "DDP_TEST_FILE=")
		}
	}
	second, err := meet(0, file+"#second")
	check(t, err)
	defer second.Close()
	model, err := lend(group)
	check(t, err)
	defer model.Close()
	if line, _ := output.ReadString('\n'); line != "leaving\n" {
		t.Fatal(line)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err := <-ended:
		check(t, err) // a crash at the end would show in the exit status
	case <-time.After(20 * time.Second):
		t.Fatal("the program does not end")
	}
	for err = nil; err == nil; { // the first barrier may still have met the other rank
		err = second.Barrier()
	}
	// Go ends without C's exit handlers, so it is a death; with the race detector it runs them, and says goodbye.
	if !errors.Is(err, Aborted) {
		is(t, err, PeerFailed, "rank 1")
	}
}
