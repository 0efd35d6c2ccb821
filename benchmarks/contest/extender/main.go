// The best case of an HTTP extender for kube-scheduler: everything in memory, one request to the API server per pod.
//
// It knows trn1.32xlarge nodes by their names alone, never lists or watches, and forgets nothing: enough for a
// benchmark in which no pod ends, and less work than any real extender has. Filter and bind, no prioritize.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/bits"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type filterArgs struct {
	Pod struct {
		Spec struct {
			Containers []struct {
				Resources struct {
					Limits map[string]string `json:"limits"`
				} `json:"resources"`
			} `json:"containers"`
		} `json:"spec"`
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	NodeNames []string
}

type filterResult struct {
	NodeNames   []string
	FailedNodes map[string]string
}

type bindArgs struct{ PodName, PodNamespace, PodUID, Node string }

var (
	lock   sync.Mutex
	used   = map[string]uint16{} // bit d: device d of the node is taken
	wanted = map[string]int{}    // devices by pod uid, kept from filter to bind
	api    *http.Client
	server = os.Args[2]
	token  string
)

// block returns the first legal free block of a 4x4 torus as a mask, 0 if there is none.
func block(used uint16, size int) uint16 {
	whole := uint16(1<<size - 1)
	for at := 0; at < 16; at += size {
		if used&(whole<<at) == 0 {
			return whole << at
		}
	}
	return 0
}

func filter(w http.ResponseWriter, r *http.Request) {
	var args filterArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	size, _ := strconv.Atoi(args.Pod.Spec.Containers[0].Resources.Limits["aws.amazon.com/neuron"])
	result := filterResult{NodeNames: make([]string, 0, len(args.NodeNames)), FailedNodes: map[string]string{}}
	lock.Lock()
	wanted[args.Pod.Metadata.UID] = size
	for _, name := range args.NodeNames {
		if block(used[name], size) != 0 {
			result.NodeNames = append(result.NodeNames, name)
		} else {
			result.FailedNodes[name] = "no free block"
		}
	}
	lock.Unlock()
	json.NewEncoder(w).Encode(result)
}

func bind(w http.ResponseWriter, r *http.Request) {
	var args bindArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	lock.Lock()
	mask := block(used[args.Node], wanted[args.PodUID])
	used[args.Node] |= mask
	lock.Unlock()
	problem := "no free block"
	if mask != 0 {
		if problem = send(args, mask); problem != "" {
			lock.Lock()
			used[args.Node] &^= mask
			lock.Unlock()
		}
	}
	json.NewEncoder(w).Encode(map[string]string{"Error": problem})
}

// send annotates and binds in one request, as the API server merges a Binding's annotations into the pod.
func send(args bindArgs, mask uint16) string {
	ids := []string{}
	for left := mask; left != 0; left &= left - 1 {
		ids = append(ids, strconv.Itoa(bits.TrailingZeros16(left)))
	}
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q,"namespace":%q,"uid":%q,`+
		`"annotations":{"AWS_NEURON_IDS":%q,"NEURON_ALLOC_TIME":"%d","NEURON_ALLOCATED":"false"}},`+
		`"target":{"kind":"Node","name":%q}}`,
		args.PodName, args.PodNamespace, args.PodUID, strings.Join(ids, ","), time.Now().UnixNano(), args.Node)
	url := server + "/api/v1/namespaces/" + args.PodNamespace + "/pods/" + args.PodName + "/binding"
	request, _ := http.NewRequest(http.MethodPost, url, bytes.NewBufferString(body))
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := api.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		return string(answer)
	}
	return ""
}

// main: extender LISTEN SERVER CA_FILE TOKEN_FILE
func main() {
	authority, err := os.ReadFile(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	secret, err := os.ReadFile(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	token = strings.TrimSpace(string(secret))
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	api = &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: trusted},
		MaxIdleConnsPerHost: 256, // every bind finds a connection that is open
	}}
	http.HandleFunc("/filter", filter)
	http.HandleFunc("/bind", bind)
	http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
