// Command allocator answers with upstream's own code: whether a node has devices for claims.
//
// It reads one Case as JSON from each line of standard input, and writes its Answer as JSON on a line of standard
// output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const longest = 10 * time.Second

// Case is a node by name, what is there, and the claims of a pod.
type Case struct {
	Node    string                       `json:"node"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes Classes                      `json:"classes"`
	Claims  []*resourceapi.ResourceClaim `json:"claims"`
	Held    []Device                     `json:"held"`
}

// Device is one that another claim has.
type Device struct {
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Name   string `json:"name"`
}

// Answer says whether there are devices, or has the error that refuses the pod everywhere.
type Answer struct {
	Fits  bool   `json:"fits"`
	Error string `json:"error"`
}

// Classes lists device classes.
type Classes []*resourceapi.DeviceClass

// List returns all of them.
func (c Classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

// Get returns the one of a name.
func (c Classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, each := range c {
		if each.Name == name {
			return each, nil
		}
	}
	return nil, fmt.Errorf("device class %s does not exist", name)
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	buffered := bufio.NewWriter(out)
	defer buffered.Flush()
	encoder := json.NewEncoder(buffered)
	cache := cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})
	for {
		var asked Case
		if err := decoder.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		found, err := answer(asked, cache)
		if err != nil {
			return err
		}
		if err := encoder.Encode(found); err != nil {
			return err
		}
	}
}

// The features are those that are on by default in this release and say something about what is asked here.
func answer(asked Case, cache *cel.Cache) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	held := sets.New[structured.DeviceID]()
	for _, device := range asked.Held {
		held.Insert(structured.MakeDeviceID(device.Driver, device.Pool, device.Name))
	}
	features := structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
	}
	state := structured.AllocatedState{AllocatedDevices: held}
	allocator, err := structured.NewAllocator(ctx, features, state, asked.Classes, asked.Slices, cache)
	if err != nil {
		return Answer{}, err
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: asked.Node}}
	results, err := allocator.Allocate(ctx, node, asked.Claims)
	if ctx.Err() != nil {
		return Answer{}, ctx.Err() // no case is so large
	}
	if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return Answer{Error: err.Error()}, nil
	}
	return Answer{Fits: err == nil && results != nil}, nil
}
